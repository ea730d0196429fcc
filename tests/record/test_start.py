"""What is known before the start: names, the run's folder, run.json, copies of configuration, packages."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.errors import UsageError
from rlhfdoctor.privacy.controls import CONTROL
from rlhfdoctor.record.naming import name_of
from rlhfdoctor.record.recorder_config import RecorderConfig, read_config, write_config
from rlhfdoctor.record.run_folder import make_folder
from rlhfdoctor.record.start import (
    command_of,
    describe_run,
    require_process,
    restarted,
    shell_line,
    start_recorder,
)
from rlhfdoctor.record.surroundings import find_packages, keep_configs, our_surroundings, surroundings_of
from rlhfdoctor.settings.shell import read_tokens
from rlhfdoctor.sources.shm import read_shm
from rlhfdoctor.trace.store import Writer

SECRET = "hunter2-do-not-tell"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "train_ppo.py"], "train_ppo"),
        (["python3.11", "-u", "/w/train.py", "--x"], "train"),
        (["/opt/venv/bin/python", "-m", "openrlhf.cli.train_ppo_ray", "--x"], "openrlhf.cli.train_ppo_ray"),
        (["bash", "examples/run_qwen.sh"], "run_qwen"),
        (["torchrun", "train.py"], "train"),
        (["./job"], "job"),
        (["sleep", "1"], "sleep"),
        (["env", "bash"], "env"),
        ([], "run"),
        *(
            (words.split(), name)
            for words, name in (
                ("python -m torch.distributed.run --nproc_per_node 2 train.py", "train"),
                ("python -m torch.distributed.run --nproc_per_node 2 -m pkg.train --lr 1", "pkg.train"),
                ("accelerate launch --config_file x.yaml train.py --config y.py", "train"),
                ("deepspeed --num_gpus 2 train.py", "train"),
                ("ray job submit --working-dir . -- python x.py", "x"),
                ("env A=b CUDA_VISIBLE_DEVICES=0,1 python x.py", "x"),
                ("A=b torchrun --nnodes=1 --nproc-per-node 8 sft.py", "sft"),
                ("uv run x.py", "x"),
                ("uv run --with torch trl grpo --config c.yaml", "trl"),
                ("numactl --cpunodebind 0 -m 0 python x.py", "x"),
                ("nice -n 10 python -X dev -u x.py", "x"),
                ("srun -p gpu --gres gpu:8 bash run_node.sh", "run_node"),
                ("timeout 30m ./train.bin --steps 3", "train"),
                ("python -c print(1)", "python"),
            )
        ),
    ],
)
def test_name(command: list[str], expected: str) -> None:
    """A run is named after its script rather than its interpreter."""
    assert name_of(command) == expected


@pytest.mark.parametrize(
    "argv", [["python", "a b.py", "x=1"], ["sh", "-c", "echo 'it''s'; exit $?"], ["x", ""], ["--a=\n", "é*"]], ids=str
)
def test_shell_line(argv: list[str]) -> None:
    """A shell takes the line as the same command."""
    assert shlex.split(shell_line(argv)) == argv


def test_folder(tmp_path: Path) -> None:
    """The run's folder has the places for logs and marks, and may be there already."""
    (tmp_path / "a" / "run").mkdir(parents=True)
    folder = make_folder(str(tmp_path / "a" / "run"), "train")
    assert (folder, sorted(path.name for path in folder.iterdir())) == (
        tmp_path / "a" / "run",
        ["lock", "logs", "marks"],
    )


def test_folder_of_another_run(tmp_path: Path) -> None:
    """A folder that holds a run is never taken for a second one."""
    make_folder(str(tmp_path / "run"), "train")
    with pytest.raises(UsageError, match="holds another run"):
        make_folder(str(tmp_path / "run"), "train")


def test_folders_of_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that start in the same second have folders of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20260101T000000Z")
    folders = [make_folder(None, "train").name for _ in range(3)]
    assert folders == ["20260101T000000Z-train", "20260101T000000Z-train-2", "20260101T000000Z-train-3"]


@pytest.mark.parametrize(
    ("name", "ending"), [("train", "-train"), ("a b/../c", "-a-b-..-c"), ("//", "-run"), ("x" * 99, "-" + "x" * 40)]
)
def test_folder_without_a_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ending: str) -> None:
    """Without --out the folder is named by time and run, below doctor-runs."""
    monkeypatch.chdir(tmp_path)
    folder = make_folder(None, name)
    assert (folder.parent, folder.name[16:]) == (tmp_path / "doctor-runs", ending)


@pytest.mark.parametrize("out", ["/proc/nowhere/run", "/dev/null/run", "/dev/null"])
def test_folder_that_cannot_be_written(out: str) -> None:
    """A folder that cannot be written is an error of use that names it and --out."""
    with pytest.raises(UsageError, match=rf"^{out}: .*--out DIR"):
        make_folder(out, "train")


def describe(folder: Path, *argv: str) -> dict[str, Any]:
    """run.json of a command."""
    folder.mkdir(exist_ok=True)
    describe_run(folder, RecorderConfig(name="train", node="n1"), argv=argv)
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def test_run_file(tmp_path: Path) -> None:
    """run.json says what runs where, and command.sh is the command for a shell."""
    run = describe(tmp_path / "run", "python", "train it.py")
    assert (run["schema"], run["name"], run["node"], run["argv"]) == (
        "rlhfdoctor.run/1",
        "train",
        "n1",
        ["python", "train it.py"],
    )
    assert (run["host"], run["cwd"]) == (os.uname().nodename, str(Path.cwd()))
    assert (tmp_path / "run" / "command.sh").read_text() == "python 'train it.py'\n"
    assert (run["limits"]["memory_total_bytes"] > 0, list((tmp_path / "run").glob("*.new"))) == (True, [])


def test_a_working_folder_that_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs only its name."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert describe(tmp_path / "run", "true")["cwd"] == ""


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs unshare (util-linux) and root")
def test_no_link_in_a_watched_process_s_namespace_is_followed(tmp_path: Path) -> None:
    """Whoever owns the process can put one where its /dev/shm would be; ours is described then."""
    entered = "mount -t tmpfs none /dev && ln -s /proc /dev/shm && echo && exec sleep 60"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", entered], stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                pytest.skip("needs a namespace of mounts")
            (tmp_path / "run").mkdir()
            run = describe_run(tmp_path / "run", RecorderConfig(name="x", node=""), argv=[], pid=process.pid)
        finally:
            process.kill()
    ours = read_shm()
    assert ours is not None and run["limits"]["shm_size_bytes"] == ours.size_bytes


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that decide how a run behaves are kept, others are not."""
    for name in (
        "NCCL_DEBUG",
        "RAY_memory_usage_threshold",
        "PYTORCH_CUDA_ALLOC_CONF",
        "LD_PRELOAD",
        "RANK",
        "MY_HOME",
        "XNCCL_DEBUG",
    ):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else "7")
    kept = describe(tmp_path / "run", "true")["environment"]
    names = {
        "NCCL_DEBUG",
        "RAY_memory_usage_threshold",
        "PYTORCH_CUDA_ALLOC_CONF",
        "LD_PRELOAD",
        "RANK",
        "MY_HOME",
        "XNCCL_DEBUG",
    }
    assert names & set(kept) == names - {"MY_HOME", "XNCCL_DEBUG"}


def everything(folder: Path) -> str:
    """All that was written below a folder."""
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "WANDB_API_KEY",
        "RAY_AUTH_TOKEN",
        "VLLM_API_KEY",
        "NCCL_password",
        "RAY_REDIS_PASSWORD",
        "TORCH_SECRET_X",
        "KUBERNETES_SERVICE_CREDENTIALS",
        "AWS_SECRET_ACCESS_KEY",
        "SLURM_JOB_AUTH",
    ],
)
def test_secret_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A secret in the environment is in no file of the run."""
    monkeypatch.setenv(name, SECRET)
    describe(tmp_path / "run", "true")
    assert SECRET not in everything(tmp_path / "run")


@pytest.mark.parametrize(
    "words", [["--use_wandb", SECRET], [f"--hf_token={SECRET}"], [f"trainer.api_key={SECRET}"]], ids=str
)
def test_secret_flags(tmp_path: Path, words: list[str]) -> None:
    """A secret on the command line, such as OpenRLHF's --use_wandb KEY, is in no file of the run."""
    describe(tmp_path / "run", "python", "train.py", *words)
    assert SECRET not in everything(tmp_path / "run")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the command is started."""
    (tmp_path / "work" / "other").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def kept(work: Path, *argv: str) -> list[tuple[str, bytes]]:
    """Path and copied content of the configuration files of a command; hashes are checked."""
    run = work.parent / "run"
    found = keep_configs(run, argv, our_surroundings())
    copies = [(run / item["copy"]).read_bytes() for item in found]
    assert [item["sha256"] for item in found] == [hashlib.sha256(data).hexdigest() for data in copies]
    return [(item["path"], data) for item, data in zip(found, copies)]


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--config", "a.yaml"],
        ["python", "train.py", "--config=a.yaml"],
        ["bash", "a.yaml"],
        ["x", "trainer.config=a.yaml", "a.yaml", "./a.yaml"],
    ],
    ids=str,
)
def test_configuration(work: Path, argv: list[str]) -> None:
    """A configuration file that the command line names is copied once, with its hash."""
    (work / "a.yaml").write_bytes(b"lr: 1\n\xff")
    assert kept(work, *argv) == [(str(work / "a.yaml"), b"lr: 1\n\xff")]


def test_configurations_of_one_name(work: Path) -> None:
    """Files of the same name in different folders are kept apart."""
    (work / "a.json").write_text("{}")
    (work / "other" / "a.json").write_text("[]")
    expected = [(str(work / "a.json"), b"{}"), (str(work / "other" / "a.json"), b"[]")]
    assert kept(work, "deepspeed", "a.json", "other/a.json") == expected


@pytest.mark.parametrize("word", ["none.yaml", "train.py", "other", "x.yaml=", "=", "big.json"])
def test_no_configuration(work: Path, word: str) -> None:
    """What is not there, is no configuration or is too large is not copied."""
    (work / "train.py").write_text("")
    (work / "big.json").write_bytes(b" " * ((2 << 20) + 1))
    assert kept(work, "python", word) == []


def test_packages(tmp_path: Path) -> None:
    """Versions are those of the packages beside the command's interpreter, and only of those that matter."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("torch-2.4.0+cu121", "flash_attn-2.6.3", "OpenRLHF-0.5.3", "requests-2.0", "ray-2.9.0"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "vllm-0.8.0.egg").mkdir()
    expected = {"torch": "2.4.0+cu121", "flash-attn": "2.6.3", "openrlhf": "0.5.3", "ray": "2.9.0"}
    assert find_packages([str(python), "train.py"], our_surroundings()) == expected


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was started in another folder, with other limits and another environment."""
    (tmp_path / "its").mkdir()
    (tmp_path / "its" / "ppo.yaml").write_text("of the run: 3\n")
    line = ["sh", "-c", "ulimit -n 333; exec sleep 60"]
    env = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "JOB", "HF_TOKEN": "hf_abcdefghijklmnop123"}
    with subprocess.Popen(line, cwd=tmp_path / "its", env=env) as process:
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        yield process
        process.kill()


def test_surroundings_of_a_process_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[bytes]
) -> None:
    """What is described of a process is its own, not that of the doctor's shell: folder, files, environment, limits."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ppo.yaml").write_text("of another project: 0\n")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("NCCL_DEBUG", "DOCTOR")
    folder = tmp_path / "run"
    folder.mkdir()
    config = RecorderConfig(name="x", node="")
    run = describe_run(folder, config, argv=["python", "train.py", "ppo.yaml"], pid=other.pid)
    assert (run["cwd"], run["environment"], run["limits"]["open_files"]) == (
        str(tmp_path / "its"),
        {"NCCL_DEBUG": "JOB"},
        333,
    )
    assert [item["path"] for item in run["configs"]] == [str(tmp_path / "its" / "ppo.yaml")]
    assert (folder / run["configs"][0]["copy"]).read_text() == "of the run: 3\n"


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs unshare (util-linux) and root")
def test_files_of_another_mount_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the same name is another file, so none is kept."""
    (tmp_path / "ppo.yaml").write_text("of the host: 1\n")
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(["unshare", "-m", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        around = surroundings_of(process.pid)
        process.kill()
    assert (around.folder, keep_configs(tmp_path, ["ppo.yaml", str(tmp_path / "ppo.yaml")], around)) == (None, [])


def test_packages_of_an_unknown_interpreter(tmp_path: Path) -> None:
    """An interpreter that is not there is no error."""
    assert isinstance(find_packages([str(tmp_path / "python9")], our_surroundings()), dict)


def test_recorder_config(tmp_path: Path) -> None:
    """Options are read as they were written; a successor follows the command's pid and holds room for its output."""
    config = RecorderConfig(
        name="a", command=("x", "y"), stdout="/o", stderr="/e", interval_s=0.5, metrics=("h:1",), port=0
    )
    write_config(str(tmp_path), config)
    assert read_config(str(tmp_path)) == config
    write_config(str(tmp_path), replace(config, alert_command=f"curl -H 'Authorization: Bearer {SECRET}' x"))
    assert SECRET not in (tmp_path / "orders.json").read_text()
    assert restarted(config, 7) == RecorderConfig(
        name="a", pids=(7,), stdout="/o", stderr="/e", interval_s=0.5, metrics=("h:1",), port=0
    )


def test_second_recorder(tmp_path: Path) -> None:
    """Where another recorder writes none is started, and the error says so."""
    folder = make_folder(str(tmp_path / "run"), "train")
    writer = Writer(str(folder), {})
    with pytest.raises(UsageError, match="another recorder is writing here"):
        start_recorder(folder, RecorderConfig(name="train", pids=(os.getpid(),)))
    writer.close()


def test_process_that_is_not_there() -> None:
    """A pid that no process has is an error of use."""
    with pytest.raises(UsageError, match="--pid 4194305: no such process"):
        require_process(4194305)


def test_command_of_a_process() -> None:
    """The arguments of a running process, word by word; none of one that is gone."""
    own = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1]
    assert (command_of(os.getpid()), command_of(4194305)) == (own, [])


def test_packages_of_a_folder_with_very_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the folders of an interpreter only so many names are read, and a version holds nothing that a screen obeys."""
    counts = []

    def names(folder: Path, most: int) -> list[str]:
        counts.append(most)
        inside = ["torch-2\x1b[2J\u202e\nray==9.dist-info"] if folder.name == "site-packages" else ["python3"]
        return [*inside, *(f"python3.{number}" for number in range(most - 1))]

    monkeypatch.setattr("rlhfdoctor.record.surroundings.names_in", names)
    assert find_packages([str(tmp_path / "bin" / "python3")], our_surroundings()) == {"torch": "2\\u001b[2J\\u202e\\u000aray==9"}
    assert counts == [20_000] * 9


@pytest.mark.parametrize("word", ["\x1b]0;x\x07", "a\u202eb c", "it's\x1b'", "\udcff\x9b1", "\x1b\u200d\x01f0", "é\r\n"], ids=ascii)
def test_shell_line_with_control_characters(word: str) -> None:
    """What a screen obeys is not in the line, and bash takes it as the same command."""
    line = shell_line(["printf", "%s|", word, "end"])
    done = subprocess.run(["bash", "-c", line.encode("utf-8")], capture_output=True)
    assert done.stdout == word.encode("utf-8", "surrogateescape") + b"|end|"
    assert CONTROL.search(line.replace("\r\n", "\n").replace("\u200d", "")) is None


def test_shell_line_is_read_again() -> None:
    """A line with such characters gives the words that it was made of to the reader of scripts, too."""
    words = ["python", "t.py", "--a", "x\x1b\u202ey", "--b=\x07", "2"]
    assert [token.text for token in read_tokens(shell_line(words))] == words
    joined = shell_line(["bash", "-c", "python t.py --a x\u200dy\r\n"])
    assert [token.text for token in read_tokens(joined) if token.nested][:2] == ["python", "t.py"]
