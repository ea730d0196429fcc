"""Values that are no numbers any more: NaN or infinity, a loss scale at its least, a KL divergence out of bounds.

Wordings of trainers that stop by themselves (DeepSpeed runtime/fp16/loss_scaler.py, Megatron-LM
megatron/core/rerun_state_machine.py, fairseq optim/fp16_optimizer.py, torch.autograd.set_detect_anomaly, TRL,
timm, detectron2, guards of scripts) and of those that only say so and go on.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

_NAN = r"(?:[Nn]a[Nn]s?|NAN|[Ii]nf(?:s|inity)?|INF|non-?finite|not finite|无穷|非数)"
_WHAT = (
    r"(?:[Ll]oss(?:es)?|[Gg]rad(?:ient)?s?(?:[_ ]norms?)?|[Rr]ewards?|[Ll]ogits|[Aa]dvantages?|[Ww]eights"
    r"|[Pp]arameters?|KL|kl|损失|梯度)"
)
_STOPS = (
    r"(?:[Aa]bort\w{0,8}|[Ss]top(?:ping|ped)?\b|[Ee]xit(?:ing|ed)?\b|[Tt]erminat\w{1,8}|[Hh]alt\w{0,8}|[Qq]uit\w{0,8}|FATAL|fatal"
    r"|[Cc]rash\w{0,8}|终止|停止|退出)"
)
_IS_NAN = rf"{_WHAT}[^\n]{{0,60}}?[ =:'](?:is |are |was |became |went )?{_NAN}\b"

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.numbers.stopped,
        rf"\b{_NAN}\b[^\n]{{0,60}}?{_WHAT}[^\n]{{0,60}}?{_STOPS}|{_IS_NAN}[^\n]{{0,60}}?{_STOPS}"
        rf"|{_STOPS}[^\n]{{0,60}}?{_IS_NAN}|损失[^\n]{{0,20}}(?:NaN|nan)[^\n]{{0,20}}{_STOPS}",
        "NaN detected in loss, aborting.",
    ),
    line(
        EVENT.numbers.stopped,
        r"loss scale already at minimum|Minimum loss scale reached|returned nan values in its \d+th output"
        r"|[Ll]oss scale (?:is )?(?:below|at|under) (?:the |its )?(?:minimum|least)[^\n]{0,80}"
        r"(?:[Ee]xit|[Aa]bort|[Ss]top)"
        r"|[Uu]nexpected result (?:nan|inf)\b|found NaN in local grad norm"
        r"|probability tensor contains either `?inf`?, `?nan`?|At least one NaN in|NaN in the logits",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    line(
        EVENT.numbers.diverged,
        r"(?:\bKL\b|\bkl\b|[Kk]ullback)[^\n]{0,60}?(?:diverge[ds]?\b|explod\w+|exceed(?:s|ed)|above|too (?:high|large))"
        r"[^\n]{0,80}?(?:[Aa]bort\w{0,8}|[Ss]topp(?:ing|ed)|[Ee]xiting|[Tt]erminating)",
        "KL divergence 182.4 exceeded the limit of 50.0: stopping",
    ),
    line(
        EVENT.numbers.nan,
        r"(?:loss|grad_norm|kl|reward|entropy)['\"]?(?: ?[:=] ?)['\"]?(?:nan|NaN|inf|-inf|Infinity)\b"
        rf"|(?:[Dd]etected|[Ff]ound|[Ee]ncountered|contains?) {_NAN}\b|grad_norm is not finite",
        "{'loss': nan, 'grad_norm': nan, 'learning_rate': 9.8e-07, 'epoch': 0.21}",
    ),
)
