"""Steps in the words of any framework: whose bars are the training's, what shows that no step had finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.core.session import Session
from rlhfdoctor.evidence.bars import LiveBars, is_still
from rlhfdoctor.evidence.collect import find_evidence
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.types import Event, Value
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from tests.build import read_log

KILLED = (
    "[2100.5] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/docker/a,"
    "task_memcg=/docker/a,task=python,pid=77,uid=0\n"
    "[2100.6] Memory cgroup out of memory: Killed process 77 (python) total-vm:90000000kB, anon-rss:60000000kB, "
    "file-rss:1000kB, shmem-rss:0kB, UID:0 pgtables:900kB oom_score_adj:0\n"
)


def bar(step: int, total: int, left: str = "05:10", rate: str = "1.15s/it") -> str:
    """A bar of tqdm without a description, as it is drawn over the one before."""
    return f"\r{100 * step // total:3d}%|###2      | {step}/{total} [02:31<{left}, {rate}]"


def metrics(step: int, *, strings: bool) -> str:
    """A line of metrics of the Hugging Face trainer as transformers 4 or 5 writes it."""
    values = {"loss": 0.0792, "grad_norm": 1.336, "learning_rate": 9.77e-06, "num_tokens": 5120.0, "epoch": step / 400}
    return "\r" + " " * 60 + "\r" + str({k: f"{v:.4g}" if strings else v for k, v in values.items()}) + "\n"


def trl_log(*, strings: bool, until: int = 131) -> str:
    """TRL: weights are loaded, a bar for each step, metrics every ten steps, an evaluation at step 100."""
    text = "Loading weights: 100%|##########| 290/290 [00:00<00:00, 900.1it/s]\n" if strings else ""
    text += "  0%|          | 0/400 [00:00<?, ?it/s]"
    for step in range(1, until + 1):
        text += bar(step, 400)
        if step % 10 == 0:
            text += metrics(step, strings=strings) + bar(step, 400)
        if step == 100:
            text += "".join(bar(item, 150, rate="9.0it/s") for item in range(1, 151)) + "\n{'eval_loss': '0.2'}\n"
    return text


def steps(text: str, folder: Path) -> list[Value]:
    """The numbers of the steps of a log, None where a line has none."""
    (folder / "job.log").write_text(text)
    with Session([str(folder)]) as session:
        return [e.fields.get(FIELD.step) for e in session.case.of(EVENT.phase.step)]


@pytest.mark.parametrize("strings", [False, True], ids=["transformers 4", "transformers 5"])
def test_bars_of_the_hugging_face_trainer(tmp_path: Path, strings: bool) -> None:
    """Its own bar counts the steps; that of the evaluation, longer than the last step, does not."""
    found = steps(trl_log(strings=strings), tmp_path)
    assert found[-1] == 131 and 150 not in found and found.count(None) == 13


@pytest.mark.parametrize("strings", [False, True], ids=["transformers 4", "transformers 5"])
def test_metrics_alone_show_that_steps_finished(tmp_path: Path, strings: bool) -> None:
    """With the bars in another file or switched off, the dictionaries remain."""
    log = "".join(metrics(step, strings=strings).replace("\r", "") for step in range(10, 130, 10))
    assert steps(log, tmp_path) == [None] * 12


def test_bars_alone_are_the_trainers_where_its_code_is(tmp_path: Path) -> None:
    """Metrics are buffered and lost when a process is killed; a traceback names the trainer."""
    frame = '  File "/opt/site-packages/transformers/trainer.py", line 2325, in train\n'
    assert steps("".join(bar(n, 400) for n in range(132)) + "\n" + frame, tmp_path)[-1] == 131


def test_the_announced_number_of_steps(tmp_path: Path) -> None:
    """`Total optimization steps` decides between two bars."""
    log = "***** Running training *****\n  Total optimization steps = 1,200\n" + bar(3, 40) + bar(7, 1200) + "\n"
    assert steps(log, tmp_path) == [7]


def test_bars_of_something_else_stay_unknown(tmp_path: Path) -> None:
    """A loop without a description may be anything: neither a step nor a proof that there was none."""
    log = "Loading checkpoint shards: 100%|#| 4/4 [00:12<00:00]\n" + "".join(bar(n, 400) for n in range(132)) + "\n"
    assert steps(log, tmp_path) == []
    assert FACT.death.before_first_step not in facts(log, tmp_path)


LINES = {
    "step:12 - actor/loss:0.031 - perf/throughput:812.4": 12,
    "(PPOTrainer pid=44) INFO Global step 12: {'policy_loss': -0.01, 'reward': 0.4}": 12,
    " iteration       12/     100 | consumed samples:          384 | elapsed time per iteration (ms): 812.4 |": 12,
    "[Rank 0] step=12, skipped=0, lr=[1e-06], mom=[(0.9, 0.999)]": 12,
    "{'train/loss': 0.41, 'train/global_step': 12}": 12,
    '{"loss": 0.41, "epoch": 0.5, "step": 12}': 12,
    "step: 12  loss:  8.1309  grad_norm:  1.42  memory:  9.53GiB(12.0%)  tps: 6,712": 12,
    "iter 12: loss 3.4112, time 120.1ms, mfu 12.1%": 12,
    "Epoch [1/3], Step [12/500], Loss: 0.4127": 12,
    "global_step=12 reward=0.51 kl=0.002": 12,
    "Epoch 0:   1%|1         | 12/1000 [00:23<10:11,  1.44it/s, v_num=0, train_loss=0.411]": 12,
    "Training:   1%|1         | 12/1000 [00:23<10:11,  1.44it/s]": 12,
    "Train step of epoch 0:   1%|1     | 12/1000 [00:23<10:11,  1.44it/s]": 12,
    "Epochs:  33%|###3      | 1/3 [12:31<25:02, 751.2s/it]": None,
}


@pytest.mark.parametrize(("line", "step"), LINES.items(), ids=LINES)
def test_metric_lines(line: str, step: int | None) -> None:
    """A step in the words of each framework."""
    found = [e for e in read_log(line) if e.kind == EVENT.phase.step]
    assert {e.fields.get(FIELD.step) for e in found} - {None} == {step} - {None} and found


NO_STEPS = (
    "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02,  1.1s/it]",
    "Loading checkpoint shards:  50%|#####     | 2/4 [00:12<00:12,  1.77s/it]",
    "Writing model shards:  50%|#####     | 2/4 [00:12<00:12,  1.77s/it]",
    "Capturing CUDA graph shapes:  40%|####      | 14/35 [00:09<00:13,  1.51it/s]",
    "Train dataset reference log probs:  40%|####      | 14/35 [00:09<00:13,  1.51it/s]",
    "Processed prompts:  85%|########5 | 870/1024 [03:19<00:35,  4.37it/s]",
    "Avg prompt throughput: 12.1 tokens/s, Avg generation throughput: 812.0 tokens/s, Running: 12 reqs",
    "Decode batch. #running-req: 12, #token: 4012, token usage: 0.31, gen throughput (token/s): 912.4",
    "{'eval_loss': '0.2112', 'eval_runtime': '3.1', 'epoch': '0.5'}",
    "model-00002-of-00004.safetensors:  40%|####      | 1.9G/4.9G [00:19<00:30, 99.1MB/s]",
    "Step 2: the loss of the seller is therefore",
)


@pytest.mark.parametrize("line", NO_STEPS)
def test_other_bars_and_figures(line: str) -> None:
    """What is loaded, evaluated, served or written is no step."""
    assert [e for e in read_log(line) if e.kind == EVENT.phase.step] == []


def facts(log: str, folder: Path, name: str = "job.log") -> dict[str, Value]:
    """The evidence of a log beside a kill in the kernel's."""
    (folder / name).write_text(log)
    (folder / "dmesg.txt").write_text(KILLED)
    with Session([str(folder)]) as session:
        case = session.case
    return {k: e.value for k, e in find_evidence(case, find_death(case), []).items()}


def test_a_leak_after_131_steps_is_not_ruled_out(tmp_path: Path) -> None:
    """131 steps are no beginning, and none of them is a proof that there was none."""
    found = facts(trl_log(strings=True), tmp_path)
    assert found[FACT.death.before_first_step] is False and found[FACT.death.step] == 131


UNREAD = "".join(f"round {n} of 4000 went well, score {n / 7:.3f}\n" for n in range(1, 400))
LOADING = "Loading checkpoint shards:  50%|#####     | 2/4 [00:12<00:12,  1.77s/it]\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", None),
        (UNREAD, None),
        (LOADING, True),
        (LOADING + UNREAD, None),
        ("Training Progress:   0%|          | 0/302 [00:00<?, ?it/s]\n" + UNREAD, True),
        ("Training Progress:  33%|###       | 100/302 [00:00<?, ?it/s]\n", True),
        ("Training Progress:   1%|          | 3/302 [02:10<2:41:01, 32.42s/it]\n", False),
        ("{'train_runtime': '182.1', 'epoch': '1'}\nrun.sh: line 3: 77 Killed   python3 sft.py\n", False),
    ],
    ids=["nothing", "unread", "loading", "loading, unread", "bar at zero", "bar resumed", "bar moved", "finished"],
)
def test_only_what_is_readable_shows_that_no_step_finished(tmp_path: Path, log: str, expected: bool | None) -> None:
    """A bar that stands still and loading to the end do; that no step was recognised does not."""
    assert facts(log + "\n", tmp_path).get(FACT.death.before_first_step) is expected


def test_a_bar_that_stands_still() -> None:
    """At zero, or where it began after a checkpoint."""
    bars = read_log(bar(0, 9) + bar(0, 9, left="?") + bar(4, 9) + "\r 44%|#| 4/9 [00:00<?, ?it/s]\n")
    assert [is_still(event) for event in bars if event.kind == EVENT.progress.bar] == [True, True, False, True]


def test_the_last_words_of_the_trainer_are_no_checkpoint(tmp_path: Path) -> None:
    """`train_runtime` says that the training is over; what came afterwards is unknown."""
    (tmp_path / "job.log").write_text(trl_log(strings=True) + "\n{'train_runtime': '182.1', 'epoch': '1'}\n")
    assert analyze([str(tmp_path)]).verdict == "healthy"
    found = facts("{'train_runtime': '182.1', 'epoch': '1'}\nrun.sh: line 3: 77 Killed   python3 sft.py\n", tmp_path)
    assert found[FACT.death.after_training] is True and FACT.death.phase not in found


def live(events: list[Event]) -> list[Value]:
    """The steps that the recorder marks while lines come in."""
    bars = LiveBars()
    return [
        e.fields[FIELD.step] for e in events if bars.read(e.kind, e.fields, "a") == "phase.step" and "step" in e.fields
    ]


def test_bars_while_a_run_goes_on() -> None:
    """The first slow bar counts before any metrics; a fast one does not; metrics beside a bar decide."""
    fast = "".join(bar(n, 9000, rate="812.0it/s") for n in (10, 20))
    assert live(read_log(fast + bar(1, 400) + bar(2, 400) + "\n")) == [1, 2]
    wrong = bar(1, 40) + bar(1, 400) + metrics(1, strings=True) + bar(2, 400) + bar(2, 40)
    assert live(read_log(wrong + "\n")) == [1, 2]
