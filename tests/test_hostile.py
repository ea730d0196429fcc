"""Hostile and broken input: an exit code of the contract, a clear message, never a traceback, never a hang."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KILL = b"Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, shmem-rss:0kB, UID:0\n"
NINES = "9" * 400


def run(*args: str | Path, stdin: bytes | None = None, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "rlhfdoctor", "analyze", *map(str, args)]
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *words] if shell else words
    data = stdin.decode("latin-1") if stdin is not None else None
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="latin-1",
        input=data,
        timeout=60,
        check=False,
        env={**os.environ, **env},
    )
    assert "Traceback" not in done.stderr
    assert "error of the doctor itself" not in done.stderr
    return done


def tar_with_odd_members() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, mtime in (("../../evil.log", 2**62), ("/abs.log", -(10**15)), ("ok.log", 0)):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(KILL), mtime
            archive.addfile(member, io.BytesIO(KILL))
    return out.getvalue()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.log.xz", b"hi\n", 2),
        ("a.log.gz", b"hi\n", 3),  # text that something has unpacked: read as it is
        ("a.log.zst", b"hi\n", 2),
        ("a.zip", b"PK\x03\x04 no zip", 2),
        ("a.tar.gz", gzip.compress(b"no tar at all" * 100), 2),
        ("a.log.gz", gzip.compress(KILL + os.urandom(3000).hex().encode())[:-2000], 1),
        ("a.log.xz", lzma.compress(KILL), 1),
        ("odd.tar", tar_with_odd_members(), 1),
        ("nul.log", b"\0" * 70000 + KILL, 1),
        ("utf16.log", KILL.decode().encode("utf-16"), 1),
        ("utf32.log", KILL.decode().encode("utf-32"), 1),
        ("bom.log", b"\xef\xbb\xbf" + KILL, 1),
        ("latin.log", b"\xe9\xff\xfe" + KILL, 1),
        ("numbers.log", f"CUDA out of memory. Tried to allocate {NINES} GiB\n".encode(), 1),
        (
            "numbers.log",
            f"WorkNCCL(SeqNum={NINES}, OpType=ALLREDUCE, Timeout(ms)={NINES}) ran for {NINES} milliseconds\n".encode(),
            3,
        ),
        (
            "numbers.log",
            f"Killed process {NINES} (x) total-vm:{NINES}kB, anon-rss:{NINES}kB, file-rss:{NINES}kB\n".encode(),
            1,
        ),
        ("stamp.log", b"[9999-13-45 99:99:99,1] " + KILL, 1),
        ("launch.sh", b"run --a 1*1e400 --b 1.2.3*4 --c e*e 'open \"quote $(\n", 3),
        ("launch.sh", b"Y=a.b=3\n$Y --x ${Y} \\\r --z\n", 3),
        (
            "launch.sh",
            b"A=xxxxxxxx\n" + b"".join(b"%c=$%c$%c$%c$%c\n" % ((c + 1,) + (c,) * 4) for c in range(65, 85)),
            3,
        ),
        ("loop.yaml", b"a: &a {b: *a, c: *a}\n", 3),
        (
            "laughs.yaml",
            b"a0: &a0 {x: 1}\n"
            + b"".join(
                b"a%d: &a%d {%s}\n" % (i, i, b", ".join(b"k%d: *a%d" % (k, i - 1) for k in range(9)))
                for i in range(1, 12)
            ),
            3,
        ),
        ("deep.json", b'{"a":' * 50000 + b"1" + b"}" * 50000, 3),
        ("deep.yaml", b"- " * 100000 + b"x\n", 3),
        ("number.json", b'{"a": {"b": 1e999, "c": "\\ud800"}}', 3),
        ("twice.yaml", b"a: 1\na: 2\n<<: {b: 1}\n", 3),
    ],
    ids=lambda value: "data" if isinstance(value, bytes) else str(value),
)
def test_file(tmp_path: Path, name: str, data: bytes, code: int) -> None:
    """A file of this kind ends with this exit code."""
    (tmp_path / name).write_bytes(data)
    assert run(tmp_path / name, "--format", "json").returncode == code


@pytest.mark.parametrize("ending", [">&-", "> /dev/full"])
def test_standard_output_that_cannot_be_written(ending: str) -> None:
    """A closed or full standard output is reported, with exit code 2."""
    assert run("-", stdin=KILL, shell=ending).returncode == 2


def test_standard_input_closed() -> None:
    """A closed standard input is reported, with exit code 2."""
    assert run("-", shell="<&-").returncode == 2


def test_compressed_standard_input() -> None:
    """Standard input is decompressed by its first bytes."""
    words = [sys.executable, "-m", "rlhfdoctor", "analyze", "-"]
    assert subprocess.run(words, cwd=ROOT, input=gzip.compress(KILL), capture_output=True, check=False).returncode == 1


def test_named_pipe(tmp_path: Path) -> None:
    """A pipe that is named on the command line is read: `doctor analyze <(dmesg)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"printf %s '{KILL.decode().strip()}' > '{pipe}'"])
    assert (run(pipe).returncode, writer.wait(10)) == (1, 0)


def test_ascii_terminal() -> None:
    """A terminal that knows ASCII only gets escapes, not an error."""
    assert run("-", stdin=KILL + b"x" * 300, PYTHONIOENCODING="ascii").returncode == 1


def test_name_too_long() -> None:
    """A path that no file system takes is wrong use."""
    assert run("a" * 400).returncode == 2


def test_no_home() -> None:
    """Without a home folder the pattern cache is left out."""
    assert run("-", stdin=KILL, HOME="/proc/nowhere", XDG_CACHE_HOME="").returncode == 1


def test_file_without_permission(tmp_path: Path) -> None:
    """A file that may not be read is a gap beside what could be read; alone it is unreadable input."""
    (tmp_path / "a.log").write_bytes(KILL)
    (tmp_path / "b.log").write_bytes(KILL)
    (tmp_path / "b.log").chmod(0)
    words = [sys.executable, "-m", "rlhfdoctor", "analyze"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything, and setpriv is not there to give that up")
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    alone, both = (
        subprocess.run([*words, str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
        for path in (tmp_path / "b.log", tmp_path)
    )
    assert (alone.returncode, "Permission denied" in alone.stderr) == (2, True)
    assert (both.returncode, "Permission denied" in both.stdout) == (1, True)


def test_long_line_without_newline(tmp_path: Path) -> None:
    """A line of 100 MB is read in bounded memory, and a message in its middle is found."""
    path = tmp_path / "one-line.log"
    with path.open("wb") as handle:
        handle.write(b"x" * 50_000_000 + KILL.strip() + b"y" * 50_000_000)
    script = (
        "import sys\nfrom rlhfdoctor.core.diagnose import analyze\nincident = analyze([sys.argv[1]])\n"
        "peak = [line for line in open('/proc/self/status') if line.startswith('VmHWM')][0]\n"
        "print(incident.death.killer, int(peak.split()[1]) < 150_000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["kernel-oom-node", "True"]
