"""Steps of the training in the words of any framework: metric lines, progress bars.

Hugging Face's trainer draws a bar without a description and writes one dictionary each `logging_steps`
(transformers/trainer_callback.py, ProgressCallback, PrinterCallback: numbers at v4.57, strings of four digits from
v5.0 on). Evaluation draws such a bar, too, so `evidence/bars.py` decides which of them are the training's.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

_NUMBER = r"['\"]?[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf)"
_METRIC = (
    r"(?:[Ll]oss|[Rr]eward|lr|LR|learning_rate|grad_?norm|kl|KL|ppl|perplexity|[Aa]ccuracy|entropy|tokens?/s|tps|mfu|samples/s)"
    r"[\w/.]{0,24}['\"]?\]?[ :=]{1,6}" + _NUMBER
)
_PREFIX = r"^(?:\([^)]{1,80}\) {0,40})?(?:\[rank\d+\]:? ?)?\s{0,20}"
_BAR = r" {0,4}\d{1,3}%\|[^|]{0,400}\| {0,12}"
_STEP = (
    r"(?:^|[\s\[({,|>'\"/])(?:[Gg]lobal[_ ]?)?(?:[Ss]tep|STEP|[Ii]ter(?:ation)?)['\"]?[ :=#\[]{1,10}"
    r"(?P<step>\d{1,9})(?:\.0+)?(?: {0,8}/ {0,8}\d{1,9})?['\"\])}]?[\s,:;|/-]"
)
_TRAINING = (
    r"(?:[Tt]rain(?:ing)?(?: (?:[Pp]rogress|[Ss]teps?|[Ii]ter(?:ation)?s?|[Ll]oop|[Bb]atch(?:es)?|step of epoch))?"
    r"|[Ss]teps?|[Gg]lobal [Ss]teps?|[Ii]ter(?:ation)?s?|[Ee]poch(?: \d{1,9}| \[?\d{1,9}/\d{1,9}\]?))"
    r"(?: ?\[?\d{1,9}(?:/\d{1,9})?\]?)?"
)

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.phase.step,
        r"\{['\"](?:loss|eps|num_tokens|objective/\w{1,40})['\"]: " + _NUMBER + r"['\"]?[,}]",
        "{'loss': '0.0792', 'grad_norm': '1.336', 'learning_rate': '9.77e-06', 'epoch': '0.016'}",
        when="transformers 4 writes numbers, 5 strings; TRL's trainers are of that kind",
    ),
    line(
        EVENT.phase.step,
        _STEP + r"[^\n]{0,160}?[^A-Za-z\n]" + _METRIC,
        "2026-03-02 10:00:01 INFO epoch 0 step 1200/40000 | loss 2.3107 | lr 3.0e-04 | 5812 tokens/s",
        when="torchtitan, nanoGPT, loggers of scripts",
        look_for=_STEP,
    ),
    line(
        EVENT.phase.step,
        r"\{['\"](?:loss|reward)['\"]: [^\n]{0,300}?['\"](?:[Gg]lobal_)?step['\"]: ['\"]?(?P<step>\d{1,9})",
        '{"loss": 0.412, "learning_rate": 1e-06, "epoch": 0.12, "step": 30}',
        when="one JSON a line",
    ),
    line(
        EVENT.phase.step,
        r"['\"](?:train(?:er|ing)?/)?global_step['\"]: ['\"]?(?P<step>[1-9]\d{0,8})",
        "{'train/loss': 0.41, 'train/global_step': 12, 'train/epoch': 0.03}",
        when="what goes to Weights & Biases; accelerate's trackers",
    ),
    line(
        EVENT.phase.step,
        r"['\"]global_step/max_steps['\"]: ['\"](?P<step>[1-9]\d{0,8})/",
        "{'loss': 1.204, 'epoch': 0.11, 'global_step/max_steps': '5/875', 'memory(GiB)': 41.2}",
        when="ms-swift",
    ),
    line(
        EVENT.phase.step,
        r"\biteration +(?P<step>\d{1,9})/ *\d{1,9} \|",
        " [2026-03-02 10:00:01] iteration       12/     100 | consumed samples:          384 |",
        when="Megatron-LM (megatron/training/training.py, training_log)",
    ),
    line(
        EVENT.phase.step,
        r"\bstep=(?P<step>\d{1,9}), skipped=\d",
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-06], mom=[(0.9, 0.95)]",
        when="DeepSpeed, each steps_per_print (runtime/engine.py, _report_progress)",
    ),
    line(
        EVENT.phase.step,
        r"/global_step=(?P<step>\d{1,9}), ",
        "[timer.py:264:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=21.07, MemAllocated=2.1GB",
        when="DeepSpeed (utils/timer.py)",
    ),
    line(
        EVENT.phase.step,
        r"\bTrain step (?P<step>\d{1,9})/\d{1,9} done",
        "20260302-10:00:01 areal INFO: Epoch 1/10 Step 12/466 Train step 12/4660 done.",
        when="AReaL",
    ),
    line(
        EVENT.phase.step,
        r"\bpipeline step (?P<step>\d{1,9}) finished",
        "[2026-03-02 10:00:01] [INFO] [rlvr_pipeline.py (610)] pipeline step 12 finished",
        when="ROLL",
    ),
    line(
        EVENT.phase.step,
        r"^\W{0,8}\d{1,6}\|(?P<step>\d{1,9})\|Loss: ",
        "1|12|Loss: 0.9034:  12%|#2        | 12/100 [00:41<05:01,  3.42s/it]",
        when="torchtune",
    ),
    line(
        EVENT.phase.step,
        _PREFIX + _TRAINING + r": ?" + _BAR + r"(?P<step>\d{1,9})/(?P<total_count>\d{1,9}) \[",
        "Epoch 0:  12%|#2        | 120/1000 [01:23<10:11,  1.44it/s, v_num=0, train_loss=0.411]",
        when="PyTorch Lightning; scripts of accelerate, diffusers; verl's and OpenRLHF's trainers of SFT",
        look_for=_TRAINING + r": ? {0,4}\d{1,3}%\|",
    ),
    line(
        EVENT.phase.step,
        _PREFIX + r"[Ee]pochs?: ?" + _BAR + r"[1-9]\d{0,8}/\d{1,9} \[",
        "Epochs:  33%|###3      | 1/3 [12:31<25:02, 751.2s/it]",
        when="a bar of whole epochs",
    ),
    line(
        EVENT.progress.bar,
        _PREFIX + _BAR + r"(?P<step>\d{1,9})/(?P<total_count>\d{1,9}) \[(?P<elapsed_text>[\d:]{4,12})<"
        r"[^,\]]{1,20}(?:, {0,6}(?P<rate_text>[\d.?]{1,12}(?:it/s|s/it)))?",
        " 33%|###2      | 131/400 [02:31<05:10,  1.15s/it]",
        when="tqdm without a description: the trainer's of Hugging Face, or any loop",
        look_for=r"(?:^|\) {0,40}|\]:? ?)\s{0,20} {0,4}\d{1,3}%\|",
    ),
    line(
        EVENT.progress.planned,
        r"Total optimization steps = (?P<total_count>[\d,]{1,12})",
        "  Total optimization steps = 400",
        when="Hugging Face's trainer, where it logs at the level info",
    ),
)
