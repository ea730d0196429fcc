"""Unified diffs as `patch -p1` and `git apply` take them, and several patches of one file together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rlhfdoctor.errors import UsageError
from rlhfdoctor.patch.spans import make_diff, splice
from rlhfdoctor.types import Patch

from .build import EASYR1, OPENRLHF, VERL, plan, texts_after
from .test_shell import hydra, script

TEN = "".join(f"line {number}\n" for number in range(1, 11))
CASES = {
    "middle": (TEN, TEN.replace("line 5", "line five")),
    "first": (TEN, TEN.replace("line 1\n", "line one\n")),
    "last": (TEN, TEN.replace("line 10", "line ten")),
    "removed": (TEN, TEN.replace("line 4\n", "")),
    "added": (TEN, TEN.replace("line 4\n", "line 4\nline 4b\n")),
    "added-at-end": (TEN, f"{TEN}line 11\n"),
    "two-hunks": (TEN * 3, TEN.replace("line 1\n", "one\n") + TEN + TEN.replace("line 10", "ten")),
    "no-newline": (TEN[:-1], TEN[:-1].replace("line 10", "line ten")),
    "no-newline-elsewhere": (TEN[:-1], TEN[:-1].replace("line 2", "line two")),
    "newline-gained": (TEN[:-1], TEN),
    "newline-lost": (TEN, TEN[:-1]),
    "one-line": ("a=1", "a=2"),
    "crlf": (TEN.replace("\n", "\r\n"), TEN.replace("line 5", "line five").replace("\n", "\r\n")),
    "crlf-no-newline": ("a\r\nb", "a\r\nc"),
    "mixed-ends": ("a\r\nb\nc\r\n", "a\r\nb2\nc\r\n"),
    "lone-return": ("progress 1\rprogress 2\nb\n", "progress 1\rprogress 2\nc\n"),
    "form-feed": ("a\x0cb\x1c\nc\u2028d\ne\n", "a\x0cb\x1c\nc\u2028d\nf\n"),
    "like-a-diff": ("--- a\n+++ b\n@@ -1 +1 @@\n\\ x\n", "--- a\n+++ c\n@@ -1 +1 @@\n\\ x\n"),
    "empty": ("", "a\n"),
    "emptied": ("a\n", ""),
    "latin-1": ("# gr\udcf6\udcdfe\na\n", "# gr\udcf6\udcdfe\nb\n"),
}


@pytest.mark.skipif(shutil.which("patch") is None, reason="the tool `patch` is not installed")
@pytest.mark.parametrize("name", ["run/launch.sh", "my run/launch.sh"])
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("emptied", "empty")])
def test_own_diff_is_applied_by_patch(case: str, name: str, tmp_path: Path) -> None:
    """`patch -p1` takes it without fuzz, offset or a reject, byte for byte."""
    before, after = CASES[case]
    file = tmp_path / name
    file.parent.mkdir()
    file.write_bytes(before.encode("utf-8", "surrogateescape"))
    diff = make_diff(before, after, name).encode("utf-8", "surrogateescape")
    command = ["patch", "-p1", "--fuzz=0", "--batch", "--no-backup-if-mismatch"]
    done = subprocess.run(command, input=diff, cwd=tmp_path, capture_output=True, check=False)
    assert (f"patching file {name}\n", 0) == (done.stdout.decode().replace("'", ""), done.returncode)
    assert after.encode("utf-8", "surrogateescape") == file.read_bytes()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("emptied", "empty")])
def test_own_diff_is_applied_by_git(case: str, tmp_path: Path) -> None:
    """`git apply` takes it too."""
    before, after = CASES[case]
    (tmp_path / "launch.sh").write_bytes(before.encode("utf-8", "surrogateescape"))
    diff = make_diff(before, after, "launch.sh").encode("utf-8", "surrogateescape")
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"]
    subprocess.run(command, input=diff, cwd=tmp_path, capture_output=True, check=True)
    assert after.encode("utf-8", "surrogateescape") == (tmp_path / "launch.sh").read_bytes()


def test_equal_texts_have_no_diff() -> None:
    """Nothing changed, nothing shown."""
    assert make_diff(TEN, TEN, "a") == ""


def patches(file: Path, text: str, *changes: tuple[str, object], framework: object = OPENRLHF) -> list[Patch]:
    """One patch for each (setting, value) of a file that is written too."""
    file.write_bytes(text.encode())
    found = [plan(str(file), text, setting, to, add=True, framework=framework) for setting, to in changes]  # type: ignore[arg-type]
    return [patch for patch in found if patch is not None]


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            script("--zero_stage 2", "--micro_train_batch_size 8", "--adam_offload", "--bf16"),
            script("--zero_stage 3", "--micro_train_batch_size 4", "--bf16"),
        ),
        (
            script("--zero_stage 2 --micro_train_batch_size 8 --adam_offload --bf16"),
            script("--zero_stage 3 --micro_train_batch_size 4 --bf16"),
        ),
        (
            script("--zero_stage 2", "--micro_train_batch_size=8", "--adam_offload --bf16", end=""),
            script("--zero_stage 3", "--micro_train_batch_size=4", "--bf16", end=""),
        ),
    ],
    ids=["lines", "one-line", "no-newline"],
)
def test_several_patches_of_one_file_are_applied_together(before: str, after: str, eol: str, tmp_path: Path) -> None:
    """Neighbouring lines, or words of one line, are no collision."""
    file = tmp_path / "launch.sh"
    wanted = patches(
        file, before.replace("\n", eol), ("zero_stage", 3), ("train.micro_batch_size", 4), ("offload_optimizer", False)
    )
    assert texts_after(wanted) == {str(file): (after.replace("\n", eol), 3)}


def test_two_added_flags_are_both_there(tmp_path: Path) -> None:
    """Two insertions at one place stand one behind the other."""
    file = tmp_path / "launch.sh"
    wanted = patches(file, script("--zero_stage 2"), ("gradient_checkpointing", True), ("grad_accum_dtype", "bf16"))
    text, count = texts_after(wanted)[str(file)]
    lines = {
        script("--zero_stage 2", *words)
        for words in (
            ("--gradient_checkpointing", "--grad_accum_dtype bf16"),
            ("--grad_accum_dtype bf16", "--gradient_checkpointing"),
        )
    }
    assert text in lines
    assert count == 2


def test_change_of_the_last_flag_and_one_added_behind_it(tmp_path: Path) -> None:
    """The value of the last flag and a flag behind it are two places."""
    file = tmp_path / "launch.sh"
    wanted = patches(
        file, script("--micro_train_batch_size 8"), ("train.micro_batch_size", 4), ("gradient_checkpointing", True)
    )
    expected = script("--micro_train_batch_size 4", "--gradient_checkpointing")
    assert texts_after(wanted) == {str(file): (expected, 2)}


def test_changed_override_and_one_added_behind_it(tmp_path: Path) -> None:
    """The same with Hydra, where another override stands between."""
    file = tmp_path / "run.sh"
    key, new = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "actor_rollout_ref.model.use_fused_kernels=True"
    wanted = patches(
        file,
        hydra(f"{key}=8", "data.train_batch_size=64"),
        ("train.micro_batch_size", 4),
        ("fused_logits", True),
        framework=VERL,
    )
    assert texts_after(wanted) == {str(file): (hydra(f"{key}=4", "data.train_batch_size=64", new), 2)}


def test_the_same_patch_twice_is_one_change(tmp_path: Path) -> None:
    """Two rules may ask for the same."""
    file = tmp_path / "launch.sh"
    wanted = patches(file, script("--zero_stage 2", "--bf16"), ("zero_stage", 3), ("zero_stage", 3))
    assert texts_after(wanted)[str(file)][0] == script("--zero_stage 3", "--bf16")


def test_two_values_for_one_place_are_refused(tmp_path: Path) -> None:
    """Which of two rules is right is the user's choice."""
    file = tmp_path / "launch.sh"
    wanted = patches(
        file, script("--micro_train_batch_size 8"), ("train.micro_batch_size", 4), ("train.micro_batch_size", 2)
    )
    with pytest.raises(UsageError, match="touches the same place as another"):
        texts_after(wanted)
    assert file.read_text() == script("--micro_train_batch_size 8")


def test_patches_of_several_files_are_kept_apart(tmp_path: Path) -> None:
    """Each file gets its own."""
    one, two = tmp_path / "one.sh", tmp_path / "two.sh"
    wanted = [
        *patches(one, script("--zero_stage 2"), ("zero_stage", 3)),
        *patches(two, script("--zero_stage 1"), ("zero_stage", 3)),
    ]
    assert texts_after(wanted) == {str(one): (script("--zero_stage 3"), 1), str(two): (script("--zero_stage 3"), 1)}


def test_file_that_vanished_is_a_message(tmp_path: Path) -> None:
    """No traceback where a file is gone."""
    file = tmp_path / "launch.sh"
    wanted = patches(file, script("--zero_stage 2"), ("zero_stage", 3))
    file.unlink()
    with pytest.raises(UsageError, match="No such file"):
        texts_after(wanted)


@pytest.mark.parametrize("changed", [f"# new\n{script('--zero_stage 2')}", script("--zero_stage 1"), ""])
def test_file_changed_since_it_was_analysed_is_refused(changed: str, tmp_path: Path) -> None:
    """A file that was changed since is left alone, wherever the change is."""
    file = tmp_path / "launch.sh"
    wanted = patches(file, script("--zero_stage 2"), ("zero_stage", 3))
    file.write_text(changed)
    with pytest.raises(UsageError, match=r"launch\.sh: changed since it was analysed"):
        texts_after(wanted)


def test_values_of_one_place_with_common_digits_are_refused(tmp_path: Path) -> None:
    """24 -> 14 and 24 -> 20 are two values of one place and not the value 10."""
    file = tmp_path / "launch.sh"
    wanted = patches(
        file, script("--micro_train_batch_size 24"), ("train.micro_batch_size", 14), ("train.micro_batch_size", 20)
    )
    with pytest.raises(UsageError, match="touches the same place as another"):
        texts_after(wanted)


def test_text_behind_what_was_analysed_stays(tmp_path: Path) -> None:
    """Of a very large file only the start is read; the rest is written back as it was."""
    file = tmp_path / "launch.sh"
    wanted = patches(file, script("--zero_stage 2"), ("zero_stage", 3))
    file.write_bytes(file.read_bytes() + b"# gr\xf6\xdfe\r\n")
    assert texts_after(wanted)[str(file)] == (script("--zero_stage 3") + "# gr\udcf6\udcdfe\r\n", 1)


def test_key_behind_a_key_without_value(tmp_path: Path) -> None:
    """A value given to the last key, and a key added below it, start at the same place of the text."""
    file = tmp_path / "config.yaml"
    before = "worker:\n  rollout:\n    max_num_batched_tokens:\n"
    wanted = patches(
        file,
        before,
        ("rollout.max_num_batched_tokens", 8192),
        ("rollout.gpu_memory_utilization", 0.4),
        framework=EASYR1,
    )
    expected = before.replace("tokens:\n", "tokens: 8192\n    gpu_memory_utilization: 0.4\n")
    assert {texts_after(order)[str(file)][0] for order in (wanted, wanted[::-1])} == {expected}


HARD = {
    "crlf": script("--zero_stage 2", "--bf16").replace("\n", "\r\n"),
    "no-newline": script("--zero_stage 2", "--bf16", end=""),
    "latin-1": script("--zero_stage 2", "--save_path gr\udcf6\udcdfe", "--bf16"),
    "last": script("--bf16", "--zero_stage 2"),
    "one-line": script("--bf16 --zero_stage 2 --adam_offload"),
}


@pytest.mark.skipif(shutil.which("patch") is None, reason="the tool `patch` is not installed")
@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
@pytest.mark.parametrize(
    "change", [("zero_stage", 3), ("gradient_checkpointing", True), ("offload_optimizer", False)], ids=lambda c: c[0]
)
def test_shown_diff_and_written_text_are_one(text: str, change: tuple[str, object], tmp_path: Path) -> None:
    """`patch -p1` with the diff that is shown makes the same bytes as the spans that are written."""
    found = plan("launch.sh", text, change[0], change[1], add=True, framework=OPENRLHF)
    if found is None:
        assert (change[0], "--adam_offload" in text) == ("offload_optimizer", False)
        return
    file = tmp_path / "launch.sh"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    command = ["patch", "-p1", "--fuzz=0", "--batch", "--no-backup-if-mismatch"]
    subprocess.run(
        command, input=found.diff.encode("utf-8", "surrogateescape"), cwd=tmp_path, capture_output=True, check=True
    )
    assert splice(text, found.replacements).encode("utf-8", "surrogateescape") == file.read_bytes()
