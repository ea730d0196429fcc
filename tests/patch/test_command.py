"""`doctor patch`: shows, writes and takes back."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlhfdoctor import analyze
from rlhfdoctor.cli import main
from rlhfdoctor.errors import UsageError
from rlhfdoctor.patch.apply import selected, write_change
from rlhfdoctor.patch.merge import apply_all
from tests.test_own_rules import filled

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "samples" / "simplerl-third-generation" / "run" / "launch.sh"
CAUSE = "gpu-no-recompute"
LOG = ROOT / "rules" / "gpu-micro-batch" / "fires" / "sixteen" / "driver.log"
BATCH, SIZED = (f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={size}" for size in (16, 1))
"""The safe patch of the incident `safe`: two sequences at their longest do not fit a GPU without recomputation."""
OFF, ON = (f"actor_rollout_ref.model.enable_gradient_checkpointing={value}" for value in (False, True))
"""Its patch that needs consent."""
CONSENT = ROOT / "samples" / "openrlhf-save-kill" / "run"
"""Its best finding, host-container-limit, has patches by consent only."""
HEALTHY = ROOT / "samples" / "verl-healthy" / "run"


PLAIN_USER = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []


def doctor(*words: str | Path) -> Result:
    """Run `doctor patch WORDS`."""
    return CliRunner().invoke(main, ["patch", *map(str, words)], catch_exceptions=False)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def safe(tmp_path: Path) -> Path:
    """An incident whose best finding has a safe patch and one that needs consent: a long script and an OOM of a GPU."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(LOG, folder)
    lines = [line for line in SCRIPT.read_text().splitlines(keepends=True) if "log_prob_micro_batch_size" not in line]
    text = "".join(lines).replace(BATCH.replace("16", "2 "), f"{BATCH} ").replace(ON, OFF)
    (folder / "launch.sh").write_text(text)
    assert (text.count(BATCH), text.count(OFF)) == (1, 1)
    return folder


def sized(script: bytes, *, consent: bool = False) -> bytes:
    """A script with the safe patch, and the other one."""
    text = script.decode().replace(BATCH, SIZED)
    return (text.replace(OFF, ON) if consent else text).encode()


@pytest.fixture
def consent(tmp_path: Path) -> Path:
    """A copy of an incident with patches by consent only."""
    return Path(shutil.copytree(CONSENT, tmp_path / "run"))


def test_patches_are_shown_and_nothing_is_written(safe: Path) -> None:
    """Without --write the folder stays as it is, and the exit code tells of an incident."""
    before = tree(safe)
    result = doctor(safe)
    assert result.exit_code == 1
    assert f"-  {BATCH} \\\n+  {SIZED} \\\n" in result.stdout
    assert result.stdout.startswith("--- a/")
    assert f"{CAUSE}: {BATCH.partition('=')[0]} 16 -> 1 [safe] in the diff\n" in result.stderr
    assert before == tree(safe)


@pytest.mark.skipif(shutil.which("patch") is None, reason="the tool `patch` is not installed")
def test_shown_patch_can_be_piped_into_patch(safe: Path) -> None:
    """In the folder that holds the file."""
    command = ["patch", "-p1", "--batch", "-d", safe]
    done = subprocess.run(command, input=doctor(safe).stdout, text=True, capture_output=True, check=False)
    assert (done.returncode, SIZED in (safe / "launch.sh").read_text()) == (0, True)


def test_healthy_run_has_nothing_to_patch() -> None:
    """Exit 0, no diff, and the reason."""
    for words in ([], ["--write"]):
        result = doctor(HEALTHY, *words)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith("nothing to write: healthy")


def test_write_applies_safe_patches_only(safe: Path) -> None:
    """The micro batch is safe; gradient checkpointing waits for consent."""
    before = (safe / "launch.sh").read_bytes()
    result = doctor(safe, "--write")
    assert (
        0,
        f"patched {safe / 'launch.sh'} (1 change); take it back with: doctor patch {safe / 'launch.sh'} --revert\n",
    ) == (result.exit_code, result.stdout)
    assert sized(before) == (safe / "launch.sh").read_bytes()


def test_the_command_to_write_repeats_what_was_given(safe: Path, tmp_path: Path) -> None:
    """With rules of one's own, and a path that a shell would take apart."""
    run, rules = safe.rename(tmp_path / "a b"), filled(tmp_path / "rules" / "gpu-our-card").parent
    command = f"doctor patch '{run}' --rules {rules} --write"
    assert f"write it: {command}\n" in doctor(run, "--rules", rules).stderr


def test_consent_applies_the_others_of_that_rule(safe: Path) -> None:
    """With --consent RULE both are written."""
    before = (safe / "launch.sh").read_bytes()
    result = doctor(safe, "--write", "--consent", CAUSE)
    assert (0, sized(before, consent=True)) == (result.exit_code, (safe / "launch.sh").read_bytes())


def test_write_without_anything_safe_says_so(consent: Path) -> None:
    """Nothing is touched, and standard error says why."""
    before = tree(consent)
    result = doctor(consent, "--write")
    assert (1, before) == (result.exit_code, tree(consent))
    assert "nothing to write without your consent" in result.stderr
    assert f"write with consent: doctor patch {consent} --consent host-container-limit --write\n" in result.stderr


def test_shown_patches_are_never_written(tmp_path: Path) -> None:
    """`show` changes what is learned, or is code: consent does not cover it."""
    folder = Path(shutil.copytree(ROOT / "samples" / "openrlhf-zero3-generate" / "run", tmp_path / "run"))
    doctor(folder, "--write", "--consent", "comm-zero3-generate-desync")
    text = (folder / "launch.sh").read_text()
    assert ("--generate_max_len 1024" in text, "--zero_stage 2" in text, "--vllm_num_engines 2" in text) == (
        True,
        True,
        True,
    )


@pytest.mark.parametrize("rule", ["no-such-rule", "host-rollout-cache-churn"])
def test_consent_to_what_was_not_found_is_wrong_use(safe: Path, rule: str) -> None:
    """A misspelt rule must not pass for consent."""
    before = tree(safe)
    result = doctor(safe, "--write", "--consent", rule)
    assert (2, before) == (result.exit_code, tree(safe))
    assert f"--consent {rule}: no such finding here. Findings: " in result.stderr
    assert CAUSE in result.stderr


@pytest.mark.parametrize("target", ["", "launch.sh"])
def test_revert_restores_every_byte(safe: Path, target: str) -> None:
    """By the folder or by the file, and without a trace."""
    before = tree(safe)
    doctor(safe, "--write", "--consent", CAUSE)
    assert before != tree(safe)
    result = doctor(safe / target, "--revert")
    assert (0, f"restored {safe / 'launch.sh'}\n", before) == (result.exit_code, result.stdout, tree(safe))


def test_revert_from_inside_the_folder(safe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare file name works too."""
    before = tree(safe)
    doctor(safe, "--write")
    monkeypatch.chdir(safe)
    assert doctor("launch.sh", "--revert").exit_code == 0
    assert before == tree(safe)


def test_revert_names_the_file_as_it_was_named(safe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a revert has the path of the command line."""
    doctor(safe, "--write")
    monkeypatch.chdir(safe)
    assert doctor("launch.sh", "--revert").stdout == "restored launch.sh\n"


def test_revert_after_two_writes_restores_the_original(safe: Path) -> None:
    """The journal keeps the first text, not the one between."""
    before = tree(safe)
    doctor(safe, "--write")
    between = tree(safe)
    doctor(safe, "--write", "--consent", CAUSE)
    assert len({str(before), str(between), str(tree(safe))}) == 3
    assert doctor(safe, "--revert").exit_code == 0
    assert before == tree(safe)


def write_and_die(folder: Path, *words: str) -> None:
    """`doctor patch --write` that is killed behind its note and before the file."""
    script = (
        "import os, sys; del sys.path[0]; import rlhfdoctor.patch.apply as apply\n"
        "apply.replace = lambda *_, **__: os._exit(137)\nfrom rlhfdoctor.cli import main; main()"
    )
    line = [sys.executable, "-c", script, "patch", folder, "--write", *words]
    assert subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 137


@pytest.mark.parametrize("again", [False, True], ids=["reverted", "written again"])
def test_write_that_is_killed_loses_no_original(safe: Path, again: bool) -> None:
    """A second patch that was noted and not made: the first text is kept, whatever is done next."""
    before = tree(safe)
    doctor(safe, "--write")
    between = (safe / "launch.sh").read_bytes()
    write_and_die(safe, "--consent", CAUSE)
    assert (safe / "launch.sh").read_bytes() == between
    if again:
        assert doctor(safe, "--write", "--consent", CAUSE).exit_code == 0
    assert doctor(safe, "--revert").exit_code == 0
    assert before == tree(safe)


def test_first_write_that_is_killed_is_taken_back(safe: Path) -> None:
    """What was noted and not made stops no revert of other files."""
    before = tree(safe)
    write_and_die(safe)
    assert (doctor(safe, "--revert").exit_code, before) == (0, tree(safe))


def test_write_that_fails_leaves_no_journal(safe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: the message says that nothing was changed, and so it is."""
    before = tree(safe)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rlhfdoctor.patch.apply.replace", full)
    result = doctor(safe, "--write")
    assert (result.exit_code, before) == (2, tree(safe))
    assert "No space left on device. Nothing was changed there." in result.stderr


def test_revert_keeps_the_mode_of_the_file(safe: Path) -> None:
    """An executable script stays executable through both."""
    (safe / "launch.sh").chmod(0o750)
    doctor(safe, "--write")
    assert (safe / "launch.sh").stat().st_mode & 0o777 == 0o750
    doctor(safe, "--revert")
    assert (safe / "launch.sh").stat().st_mode & 0o777 == 0o750


def test_link_stays_a_link(safe: Path) -> None:
    """The file behind a symbolic link that is named itself is patched, the link stays."""
    (safe / "launch.sh").rename(safe.parent / "shared.sh")
    (safe / "launch.sh").symlink_to("../shared.sh")
    before = (safe.parent / "shared.sh").read_bytes()
    doctor(safe, "--write")
    assert (safe.parent / "shared.sh").read_bytes() == before
    doctor(safe, safe / "launch.sh", "--write")
    assert (safe / "launch.sh").is_symlink()
    assert (safe.parent / "shared.sh").read_bytes() == sized(before)


@pytest.mark.parametrize("target", ["launch.sh", ""], ids=["file", "folder"])
def test_revert_through_a_link(safe: Path, target: str) -> None:
    """What was written through a link is taken back through it, by the file and by the folder."""
    (safe / "launch.sh").rename(safe / "shared.sh.of.all")
    (safe / "launch.sh").symlink_to("shared.sh.of.all")
    before = tree(safe)
    doctor(safe, "--write")
    assert before != tree(safe)
    assert (doctor(safe / target, "--revert").exit_code, before) == (0, tree(safe))


@pytest.mark.parametrize("change", [b"\n# mine\n", b" "])
def test_revert_after_a_manual_change_is_refused(safe: Path, change: bytes) -> None:
    """Own work is not overwritten; the message names the kept original."""
    doctor(safe, "--write")
    with (safe / "launch.sh").open("ab") as file:
        file.write(change)
    changed = tree(safe)
    result = doctor(safe, "--revert")
    assert (2, changed) == (result.exit_code, tree(safe))
    assert f"{safe / 'launch.sh'}: changed since it was patched; the original is kept in" in result.stderr


def test_manual_change_between_two_writes_is_not_lost(safe: Path) -> None:
    """A revert brings back the text with the change, or refuses; it never drops it."""
    doctor(safe, "--write")
    with (safe / "launch.sh").open("a") as file:
        file.write("# mine\n")
    doctor(safe, "--write", "--consent", CAUSE)
    doctor(safe, "--revert")
    assert (safe / "launch.sh").read_text().endswith("# mine\n")


@pytest.mark.parametrize("target", ["", "launch.sh", "no-such-file.sh"])
def test_revert_without_a_write_is_wrong_use(safe: Path, target: str) -> None:
    """Nothing to take back is said, not passed over."""
    result = doctor(safe / target, "--revert")
    assert (result.exit_code, "nothing to take back" in result.stderr) == (2, True)


def test_journal_that_cannot_be_made_is_a_message(safe: Path) -> None:
    """A plain file in the journal's place stops the write before the script is touched."""
    (safe / ".rlhfdoctor").write_text("mine")
    before = tree(safe)
    result = doctor(safe, "--write")
    assert (2, before) == (result.exit_code, tree(safe))
    assert f"{safe / 'launch.sh'}: cannot be written" in result.stderr


@pytest.mark.skipif(
    bool(PLAIN_USER) and shutil.which("setpriv") is None, reason="root, and no `setpriv` to give up rights"
)
@pytest.mark.parametrize("words", [["--write"], ["--revert"]])
def test_read_only_folder_is_a_message(safe: Path, words: list[str]) -> None:
    """Exit 2 and one line, no traceback, no half-written file; root gives up its right to write anywhere."""
    if words == ["--revert"]:
        doctor(safe, "--write")
    before = tree(safe)
    folders = [safe, *(path for path in safe.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    command = [sys.executable, "-B", "-m", "rlhfdoctor", "patch", str(safe), *words]
    done = subprocess.run([*PLAIN_USER, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    for folder in folders:
        folder.chmod(0o755)
    assert (2, before) == (done.returncode, tree(safe))
    assert "Traceback" not in done.stderr
    assert f"{safe / 'launch.sh'}: cannot be written: Permission denied" in done.stderr


@pytest.fixture
def archive(safe: Path) -> Path:
    """The incident as a tar archive."""
    path = safe.parent / "run.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(safe, "run")
    return path


def test_patches_of_an_archive_are_shown(archive: Path) -> None:
    """The diff names the member."""
    result = doctor(archive)
    assert (result.exit_code, f"+  {SIZED} \\\n" in result.stdout) == (1, True)


def test_member_of_an_archive_is_not_written(archive: Path) -> None:
    """The message says what to do."""
    before = archive.read_bytes()
    result = doctor(archive, "--write")
    assert (2, before) == (result.exit_code, archive.read_bytes())
    assert "is inside an archive; extract it before patching" in result.stderr


def test_member_of_an_archive_leaves_exit_2(archive: Path) -> None:
    """Whatever the words, it is wrong use and no traceback."""
    result = doctor(archive, "--write")
    assert (result.exit_code, result.stderr.startswith("doctor: ")) == (2, True)


@pytest.mark.parametrize("words", [[], ["--write"], ["--write", "--consent", CAUSE]])
def test_bytes_that_are_no_utf8_do_no_harm(safe: Path, words: list[str]) -> None:
    """Latin-1 letters beside the change are shown or written without a traceback."""
    raw = (safe / "launch.sh").read_bytes().replace(BATCH.encode(), BATCH.encode() + b" foo.bar='\xf6'")
    (safe / "launch.sh").write_bytes(raw.replace(OFF.encode(), OFF.encode() + b" baz.q=\xe9"))
    command = [sys.executable, "-B", "-m", "rlhfdoctor", "patch", str(safe), *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "utf-8"}
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == (0 if words else 1)
    assert (b"\xf6" in (safe / "launch.sh").read_bytes(), b"\xe9" in (safe / "launch.sh").read_bytes()) == (True, True)


def test_unreadable_path_is_a_message(tmp_path: Path) -> None:
    """Exit 2 for what is not there."""
    result = doctor(tmp_path / "none")
    assert (result.exit_code, result.stderr.startswith("doctor: ")) == (2, True)


def test_writing_twice_says_so(safe: Path) -> None:
    """Exit 0, no second edit, and the command that takes it back; without --write the same, and no diff."""
    doctor(safe, "--write", "--consent", CAUSE)
    written = tree(safe)
    again = doctor(safe, "--write", "--consent", CAUSE)
    back = f"(2 places); take it back with: doctor patch {safe / 'launch.sh'} --revert\n"
    assert (again.exit_code, again.stdout.startswith("already applied: "), again.stdout.endswith(back)) == (0, True, True)
    shown = doctor(safe, "--consent", CAUSE)
    assert (shown.exit_code, shown.stdout, "already applied: " in shown.stderr) == (1, "", True)
    assert written == tree(safe)


def test_consent_after_a_write_is_the_rest(safe: Path) -> None:
    """The diff is of the file as it is by now; both ways lead to the same bytes, and the verdict stays."""
    script = (safe / "launch.sh").read_bytes()
    doctor(safe, "--write")
    shown = doctor(safe, "--consent", CAUSE).stdout
    assert (f"-  {OFF} \\\n" in shown, f"-  {BATCH} \\\n" in shown) == (True, False)
    assert doctor(safe, "--write", "--consent", CAUSE).exit_code == 0
    assert sized(script, consent=True) == (safe / "launch.sh").read_bytes()


@pytest.mark.parametrize("sample", ["samples/lab-save-kill", "samples/lab-generate-desync", "samples/lab-slow-reward"])
def test_verdict_outlives_its_patch(sample: str, tmp_path: Path) -> None:
    """The same logs say the same after a write: they are of the run that had the file as it was."""
    run = Path(shutil.copytree(ROOT / sample / "run", tmp_path / "run"))
    first = analyze([str(run)])
    assert first.best is not None
    assert doctor(run, "--write", "--consent", first.best.cause).exit_code == 0
    second = analyze([str(run)])
    assert second.best is not None
    assert (first.verdict, first.best.cause) == (second.verdict, second.best.cause)
    written = tree(run)
    assert doctor(run, "--write", "--consent", first.best.cause).stdout.startswith("already applied: ")
    assert written == tree(run)


def test_file_changed_in_between(safe: Path) -> None:
    """What was edited after the analysis is not overwritten."""
    (change,) = apply_all(selected(analyze([str(safe)]).findings, ()))
    (safe / "launch.sh").write_bytes(b"# mine\n")
    with pytest.raises(UsageError, match="changed since it was analysed"):
        write_change(change)
    assert (safe / "launch.sh").read_bytes() == b"# mine\n"


def test_all_says_the_rest(safe: Path) -> None:
    """Effects, costs and the diffs that are not written are on standard error; the diff stays the same."""
    brief, whole = doctor(safe), doctor(safe, "--all")
    assert brief.stdout == whole.stdout
    assert brief.stderr.count("Cost: ") == brief.stderr.count("[consent]")
    assert whole.stderr.count("Cost: ") > brief.stderr.count("Cost: ")
    assert (f"+  {ON}" in brief.stderr, f"+  {ON}" in whole.stderr) == (False, True)


@pytest.mark.parametrize("words", [[], ["--write"]])
def test_logs_from_standard_input(safe: Path, words: list[str]) -> None:
    """A log by a pipe and the script beside it."""
    log = (safe / "driver.log").read_bytes()
    (safe / "driver.log").unlink()
    before = (safe / "launch.sh").read_bytes()
    result = CliRunner().invoke(main, ["patch", "-", str(safe / "launch.sh"), *words], input=log)
    assert result.exit_code == (0 if words else 1)
    assert (safe / "launch.sh").read_bytes() == (sized(before) if words else before)
