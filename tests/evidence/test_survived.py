"""Words of a failure that killed nothing: handled errors, answers of the model, names in messages of the kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

import rlhfdoctor

SAMPLES = Path(__file__).parents[2] / "samples"
KILL = (
    "Memory cgroup out of memory: Killed process 60211 (ray::ActorModel) total-vm:171339056kB, anon-rss:83339056kB, "
    "file-rss:841416kB, shmem-rss:28940024kB, UID:0 pgtables:220000kB oom_score_adj:0"
)
CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 3.00 GiB is free."
)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("driver.log", '{"prompt": "explain", "response": "you may see: ' + KILL + '"}'),
        ("driver.log", '{"prompt": "explain", "response": "' + CUDA + '"}'),
        ("driver.log", f"(ActorModelRayActor pid=60211) response: [71832.442247] {KILL}"),
        ("driver.log", f"(TaskRunner pid=77) [71832.442247] {KILL}"),
        ("driver.log", "[response] ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
        ("driver.log", f"│ why does it die? │ {CUDA} │ 0.50 │"),
        ("driver.log", "[reward] 1\n[prompt] why?\n[response] It says\n" + CUDA + "\nso lower it.\n[ground_truth] 3"),
        ("driver.log", CUDA),
        ("dmesg.txt", f"[71832.442247] cgroup: fork rejected by pids controller in /user.slice/user-1000.slice/{KILL}"),
        ("dmesg.txt", f"[71832.442247] process '/tmp/{KILL}' started with executable stack"),
    ],
)
def test_a_healthy_run_stays_healthy(tmp_path: Path, file: str, line: str) -> None:
    """Whoever writes a prompt, or names a cgroup, decides no verdict."""
    run = tmp_path / "run"
    copytree(SAMPLES / "openrlhf-healthy" / "run", run)
    lines = (run / file).read_text().split("\n") if (run / file).exists() else [""]
    middle = len(lines) // 2
    (run / file).write_text("\n".join([*lines[:middle], line, *lines[middle:]]))
    assert rlhfdoctor.analyze(str(run)).verdict == "healthy"


def _log(*more: str) -> str:
    steps = [f"2026-11-20 01:{minute:02}:00 INFO Training step {minute}/90 | loss: 0.1 | grad_norm: 1.0\n" for minute in range(1, 31)]
    return "".join((*steps[:10], *(f"{line}\n" for line in more), *steps[10:]))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (_log(CUDA), "inconclusive"),
        (_log(CUDA) + CUDA, "cause"),
        (_log(CUDA, "Loading checkpoint shards: 100%|##########| 4/4 [00:01<00:00,  2.52it/s]"), "cause"),
    ],
    ids=["outlived", "and then not", "started again"],
)
def test_steps_behind_it(tmp_path: Path, text: str, verdict: str) -> None:
    """A run that goes on has not died; one that was started again had."""
    (tmp_path / "train.log").write_text(text)
    found = rlhfdoctor.analyze(str(tmp_path))
    assert (found.death is not None) == (verdict == "cause"), found


SAMPLE = ("[prompt] user", "why?", "[response] It says:", CUDA, KILL, "Exit status 137", "[ground_truth] 3", "[score] 1.0")
STEP = "step:{} - actor/pg_loss:0.1 - actor/lr:1e-06"


@pytest.mark.parametrize("who", [TASK := "(TaskRunner pid=77) ", ""])
@pytest.mark.parametrize(
    ("behind", "dies"),
    [
        ((), ()),
        (("{who}" + CUDA,), (TASK, "")),
        (("(WorkerDict pid=78) " + CUDA, *("{who}" + line for line in SAMPLE[-2:])), (TASK, "")),
        (("{who}[prompt] user", "{who}" + CUDA.replace("20.00", "21.00")), (TASK, "")),
        (("{who}" + CUDA, "{who}[response] the next", "{who}[score] 0.0"), ("",)),
    ],
    ids=["nothing", "the same process", "another process, before the sample's end", "a sample without an end", "between two"],
)
def test_a_sample_of_many_lines(tmp_path: Path, who: str, behind: tuple[str, ...], dies: tuple[str, ...]) -> None:
    """What a trainer prints of its data is data; what stands behind it, and what others print meanwhile, is not.

    A process of a known number that prints a whole sample more had not died; lines without one may be of another.
    """
    sample = SAMPLE[:-2] if "{who}" + SAMPLE[-1] in behind else SAMPLE
    lines = [who + line for step in range(8) for line in (STEP.format(step), *SAMPLE)][: -len(SAMPLE)]
    lines += [*(who + line for line in sample), *(line.format(who=who) for line in behind)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    found = rlhfdoctor.analyze(str(tmp_path))
    assert (found.death is not None) == (who in dies), found.death


CHAT = "<|im_start|>"
ANSWERS = {
    "OpenRLHF, a list": ("['" + CHAT + "user\\nwhy?<|im_end|>\\n" + CHAT + "assistant\\n" + CUDA + "<|im_end|>', '1.0']",),
    "ChatML": (CHAT + "user", "why?<|im_end|>", CHAT + "assistant", "It says:", CUDA, KILL, "so lower it.<|im_end|>"),
    "ChatML, an answer with a turn in it": (CHAT + "assistant", "Print", CHAT + "user", CUDA, "is how.<|im_end|>"),
    "Llama 3": ("<|start_header_id|>assistant<|end_header_id|>", "", CUDA, "<|eot_id|>"),
    "Gemma": ("<start_of_turn>model", CUDA, "<end_of_turn>"),
    "R1-Zero": ("User: why? Assistant: Let me think.", "<think>", CUDA, "</think> <answer> 3 </answer>"),
    "R1-Zero, a question": ("User: why", CUDA, "when I train?", "Assistant: <think> Lower it.", "</think> <answer> 3 </answer>"),
    "of one line": ("Assistant: It says " + CUDA,),
    "a message": ("{'role': 'assistant', 'content': 'It says " + CUDA + "'}",),
    "a message, content first": ('{"content": "' + CUDA + '", "role": "assistant"}',),
    "vLLM": ("INFO 11-20 01:03:04 logger.py:42] Received request 7: prompt: 'why " + CUDA + "', params: SamplingParams(n=1)",),
    "verl, a field's name in an answer": ("[prompt] user", "[response] Write", "[prompt] and", CUDA, "[score] 0.0"),
}


ANSWERS |= {
    "verl, a dump of answers": ('{"input": "why", "output": "It says\\n' + CUDA + '\\nso lower it.", "gts": "1", "score": 0.0, "step": 1}',),
    "vLLM, an answer": ("INFO 11-20 01:03:04 request_logger.py:109] Generated response 7: output: '" + CUDA + "', finish_reason: stop",),
    "verl, a long answer": ("[response] It says", *(f"word {number}" for number in range(700)), CUDA, "[score] 0.0"),
}
SAID = "It fails:\n{}\nso look into it."
LISTED = {
    "a vLLM answer": "INFO 11-20 01:03:04 [logger.py:71] Generated response 7: output: {!r}, output_token_ids: None",
    "a vLLM prompt": "INFO 11-20 01:03:04 [logger.py:42] Received request 7: prompt: {!r}, params: SamplingParams(n=1)",
    "a list with a score": "[{!r}, 0.5]",
    "a dict": "{{'prompt': 'why', 'completions': ['good', {!r}], 'reward': 0.1}}",
    "messages": "[{{'role': 'user', 'content': 'why'}}, {{'role': 'assistant', 'content': {!r}}}]",
    "SGLang": "Finish: obj=GenerateReqInput(rid='1', text={!r}), out={{'meta_info': {{}}}}",
}


@pytest.mark.parametrize("form", LISTED.values(), ids=LISTED)
@pytest.mark.parametrize("died", ["Segmentation fault (core dumped)", "ValueError: bad value", CUDA, "KeyboardInterrupt"])
def test_a_line_within_a_string(tmp_path: Path, form: str, died: str) -> None:
    """A line of an answer that is printed as one string is not at the begin of a line."""
    lines = [*map(STEP.format, range(8)), form.format(SAID.format(died)), STEP.format(8)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert rlhfdoctor.analyze(str(tmp_path)).death is None


@pytest.mark.parametrize(
    "form", ['{{"prompt": "why", "error": {}}}', '{{"step": 3, "message": {}}}', '{{"responses": ["a", "b"], "exc_info": {}}}']
)
def test_a_failure_within_a_string(tmp_path: Path, form: str) -> None:
    """One of which the key does not say that it is a sample."""
    text = json.dumps("Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nValueError: bad value")
    (tmp_path / "train.log").write_text("\n".join([*map(STEP.format, range(8)), form.format(text)]) + "\n")
    assert rlhfdoctor.analyze(str(tmp_path)).death is not None


TOKENIZER = (
    "Qwen2TokenizerFast(special_tokens={'eos_token': '<|im_end|>', 'pad_token': '<|endoftext|>'}, added_tokens_decoder={",
    '151643: AddedToken("<|endoftext|>", special=True),',
    '151644: AddedToken("<|im_start|>", special=True),',
    '151645: AddedToken("<|im_end|>", special=True),',
)
BETWEEN = {
    "a rank": ("Assistant: Let me think.", f"[rank3]: {CUDA}", "so 3.", "</think> <answer> 3 </answer>"),
    "slurm": ("<|im_start|>assistant", "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0.", "3<|im_end|>"),
    "the kernel": ("Assistant: Let me think.", f"[71832.442247] {KILL}", "</think> <answer> 3 </answer>"),
    "a rank, behind a prefix": ("(T pid=7) [response] a", f"(T pid=7) [rank3]: {CUDA}", "(T pid=7) [score] 1.0"),
    "two prints of a tokenizer": (*TOKENIZER, CUDA, "restarting", *TOKENIZER),
    "a template that is printed": ("chat template: <|im_start|>system", CUDA, "restarting", "PAD token: <|endoftext|>"),
    "an exception about a token": ("Response: 42", CUDA, "ValueError: cannot decode </s>"),
}
BETWEEN |= {
    "an exception about a tag": ("Assistant: 42", "Traceback (most recent call last):", "ValueError: nothing in </answer>"),
    "a sample in one line, later": ("Response: 42", CUDA, "last one: <think>3</think>"),
    "a field's word behind a whole sample": ("[response] 42", "[score] 1.0", CUDA, "[score] server closed", "[score writer] closed"),
    "a token in a setting": ("<|im_start|>user", "why<|im_end|>", CUDA, "stop=<|im_end|> eos=2"),
    "a token behind a whole turn": ("<|im_start|>user", "why<|im_end|>", CUDA, "the last one was why<|im_end|>"),
    "a question without an answer": ("User: why", CUDA, "closed </think>"),
}


@pytest.mark.parametrize("lines", BETWEEN.values(), ids=BETWEEN)
def test_a_failure_in_the_middle(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """What no sample can hold, or what no sample is: a failure that is shown by mistake is better than one that is lost."""
    (tmp_path / "train.log").write_text("\n".join([*map(STEP.format, range(8)), *lines]) + "\n")
    assert rlhfdoctor.analyze(str(tmp_path)).death is not None


@pytest.mark.parametrize("who", ["(TaskRunner pid=77) ", ""])
@pytest.mark.parametrize("sample", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_in_every_form(tmp_path: Path, who: str, sample: tuple[str, ...]) -> None:
    """The last thing that a log has is an answer with words of a failure: data, in all forms that trainers print."""
    lines = [who + line for step in range(8) for line in (STEP.format(step), *sample)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert rlhfdoctor.analyze(str(tmp_path)).death is None


@pytest.mark.parametrize("sample", ANSWERS.values(), ids=ANSWERS)
def test_a_failure_behind_an_answer(tmp_path: Path, sample: tuple[str, ...]) -> None:
    """What stands behind an answer counts, and behind one whose end was never printed, also before the next."""
    died = CUDA.replace("20.00", "21.00")
    for behind in ((*sample[:1], died), (*sample, died), (*sample[:1], died, *sample)):
        lines = [line for step in range(8) for line in (STEP.format(step), *sample)][: -len(sample) or None]
        (tmp_path / "train.log").write_text("\n".join([*lines, *behind]) + "\n")
        assert rlhfdoctor.analyze(str(tmp_path)).death is not None, behind


@pytest.mark.parametrize(
    "line",
    [
        "('" + CUDA.partition(": ")[2] + "',)",
        "['" + CUDA + "']",
        "('" + CUDA + "\\nlook into it', 137)",
        "['Traceback (most recent call last):\\n', '  File \"t.py\", line 3, in <module>\\n', '" + CUDA + "\\n']",
        "(WorkerDict pid=78) " + CUDA,
    ],
    ids=["arguments", "a list", "arguments with a number", "a traceback as a list", "a worker"],
)
def test_an_exception_is_no_sample(tmp_path: Path, line: str) -> None:
    """What Python prints of an exception's arguments or of a formatted traceback is the failure."""
    (tmp_path / "train.log").write_text("\n".join([*map(STEP.format, range(8)), line]) + "\n")
    assert rlhfdoctor.analyze(str(tmp_path)).death is not None


WRAPPED = {
    "Docker": lambda line, number: json.dumps({"log": line + "\n", "stream": "stdout", "time": f"2026-11-20T01:00:{number:02}Z"}),
    "Kubernetes": lambda line, number: f"2026-11-20T01:00:{number:02}.1234Z stdout F {line}",
    "kubectl": lambda line, number: f"[pod/train-0/trainer] {line}",
    "compose": lambda line, number: f"trainer-1  | {line}",
    "srun -l": lambda line, number: f"0: {line}",
    "mpirun": lambda line, number: f"[1,0]<stdout>:{line}",
    "torchrun": lambda line, number: f"[default0]:{line}",
    "a rank": lambda line, number: f"[rank0]: {line}",
    "journald": lambda line, number: f"Nov 20 01:00:{number:02} node1 train[123]: {line}",
    "a time": lambda line, number: f"[2026-11-20 01:00:{number:02}] {line}",
    "a host": lambda line, number: f"node17: {line}",
    "JSON": lambda line, number: json.dumps({"level": "info", "message": line}),
    "a time and Ray": lambda line, number: f"2026-11-20 01:00:{number:02} (TaskRunner pid=7) {line}",
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("form", ["ChatML", "R1-Zero"])
def test_a_sample_behind_a_prefix(tmp_path: Path, wrap: Callable[[str, int], str], form: str) -> None:
    """What is taken back for a failure is taken back for a sample, and a failure behind one counts."""
    lines = [*map(STEP.format, range(8)), *ANSWERS[form]]
    for more, dies in ((), False), ((CUDA.replace("20.00", "21.00"),), True), ((CUDA,), True):
        text = "".join(f"{wrap(line, number)}\n" for number, line in enumerate((*lines, *more)))
        (tmp_path / "train.log").write_text(text)
        assert (rlhfdoctor.analyze(str(tmp_path)).death is not None) == dies, more


def _steps(first: int, last: int, timed: bool = False) -> str:
    """Steps, one a second from ten o'clock on."""
    times = (f"2026-01-09 {10 + step // 3600}:{step // 60 % 60:02}:{step % 60:02} " if timed else "" for step in range(first, last))
    return "".join(f"{time}step:{step} - actor/lr:1e-06\n" for time, step in zip(times, range(first, last)))


@pytest.mark.parametrize(
    ("between", "last", "verdict", "step"),
    [
        ("Resuming from checkpoint global_step_30\n", 90, "inconclusive", None),
        ("+ python -m verl.trainer.main_ppo a.b=1\n", 90, "inconclusive", None),
        ("+ python -m verl.trainer.main_ppo a.b=2\n", 90, "undecided", 49),
        ("+ python -m verl.trainer.main_ppo a.b=1\n", 45, "undecided", 49),
    ],
)
def test_another_attempt_in_the_same_log(tmp_path: Path, between: str, last: int, verdict: str, step: int | None) -> None:
    """One that resumes, or has the same command line, and comes further, outlives the failure; the step is the first one's."""
    first = "+ python -m verl.trainer.main_ppo a.b=1\n" + _steps(1, 50) + CUDA + "\n"
    (tmp_path / "job.log").write_text(first + between + _steps(30, last))
    incident = rlhfdoctor.analyze(str(tmp_path))
    assert (incident.verdict, incident.death and incident.death.step) == (verdict, step)


@pytest.mark.parametrize(
    ("log", "dies"),
    [(_steps(1, 199, timed=True), False), (_steps(1, 124, timed=True), True)],
)
def test_a_kill_while_the_log_goes_on(tmp_path: Path, log: str, dies: bool) -> None:
    """What the kernel killed a minute before the log ends was another process; at its end it was the run's."""
    (tmp_path / "job.log").write_text(log)
    (tmp_path / "dmesg.txt").write_text(f"[Fri Jan  9 10:02:00 2026] {KILL}\n")
    assert (rlhfdoctor.analyze(str(tmp_path)).death is not None) == dies
