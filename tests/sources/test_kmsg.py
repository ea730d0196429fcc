"""The kernel log: records, escapes, continuation lines, stamps as dmesg prints them, and the real device."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rlhfdoctor.sources.kmsg import KernelLog, parse_record, show_stamp

KMSG = "/dev/kmsg"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"6,1234,5678901234,-;Memory cgroup out of memory: Killed process 42 (python)\n",
            (5678.901234, "Memory cgroup out of memory: Killed process 42 (python)"),
        ),
        (b"4,99,7,-;x\n", (7e-06, "x")),
        (b"4,99,123456000001,-;x\n", (123456.000001, "x")),
        (b"4,99,7,-;usb 1-1: new\n SUBSYSTEM=usb\n DEVICE=+usb:1-1\n", (7e-06, "usb 1-1: new")),
        (b"4,99,7,c;part of a line\n", (7e-06, "part of a line")),
        (b"4,99,7,-,caller=T42;x\n", (7e-06, "x")),
        (b"12,99,7,-;of a user: a;b,c\n", (7e-06, "of a user: a;b,c")),
        (b"4,99,7;short head\n", (7e-06, "short head")),
        (b"4,99,7,-;\n", (7e-06, "")),
        (b"4,99,7,-;no line end", (7e-06, "no line end")),
        (b"4,99,7,-;tab\\x09 backslash \\x5c end\n", (7e-06, "tab\t backslash \\ end")),
        (b"4,99,7,-;of /a\\x0aOut of memory\\x1b[2J\\x7f\n", (7e-06, "of /a\\x0aOut of memory\\x1b[2J\\x7f")),
        (b"4,99,7,-;not hex \\xzz \\x4\n", (7e-06, "not hex \\xzz \\x4")),
        (b"4,99,7,-;c\xff\n", (7e-06, "c\ufffd")),
    ],
    ids=[
        "kill",
        "early",
        "late",
        "continuation",
        "fragment",
        "caller",
        "semicolon",
        "short head",
        "no text",
        "no line end",
        "escapes",
        "controls",
        "no escapes",
        "no text code",
    ],
)
def test_record(data: bytes, expected: tuple[float, str]) -> None:
    """A record is its time since boot and its first line, with the escapes undone."""
    assert expected == parse_record(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"no head\n",
        b"4,99;x\n",
        b"4,99,soon,-;x\n",
        b"4,99,,-;x\n",
        b" SUBSYSTEM=usb\n",
        b"\xff\0;\n",
        b";;;\n",
    ],
)
def test_no_record(data: bytes) -> None:
    """What has no head with a time is no record."""
    assert parse_record(data) is None


def test_record_with_a_name_beyond_ascii() -> None:
    """The kernel escapes each byte beyond ASCII, and together they are UTF-8."""
    assert parse_record(rb"4,99,7,-;Killed process 7 (gr\xc3\xb6\xc3\x9fe)" + b"\n") == (
        7e-06,
        "Killed process 7 (größe)",
    )


def test_no_log(tmp_path: Path) -> None:
    """Where the log may not be read or is no file to seek in, opening it is an OSError and leaks nothing."""
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError):
        KernelLog(str(tmp_path / "none"))
    with pytest.raises(OSError):
        KernelLog(str(tmp_path / "pipe"))
    assert before == os.listdir("/proc/self/fd")


def test_log_from_its_end(tmp_path: Path) -> None:
    """What was written before it was opened is not told, what comes later is reported once."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"4,1,1000000,-;old\n")
    log = KernelLog(str(path))
    first = log.read()
    path.write_bytes(b"4,1,1000000,-;old\n4,2,2000000,-;new\n")
    second, third = log.read(), log.read()
    log.close()
    assert (first, len(second), third) == ([], 1, [])
    stamp, _, text = second[0].partition(" ")
    assert text == "new"
    assert datetime.fromisoformat(stamp.replace(",", ".")).timestamp() == pytest.approx(
        time.time() - time.monotonic() + 2, abs=5
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1743606120.5, "2025-04-02T15:02:00,500000+00:00"),
        (1743606120, "2025-04-02T15:02:00,000000+00:00"),
        (1743606120.015625, "2025-04-02T15:02:00,015625+00:00"),
        (0.0, "1970-01-01T00:00:00,000000+00:00"),
    ],
)
def test_stamp(seconds: float, expected: str) -> None:
    """A stamp has the zone and six digits, as `dmesg --time-format iso` writes them."""
    assert expected == show_stamp(seconds)


def test_log_of_garbage(tmp_path: Path) -> None:
    """What is no record is passed over."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    log = KernelLog(str(path))
    path.write_bytes(b"\xff\0garbage\n")
    assert log.read() == []
    log.close()


@pytest.fixture
def live_log() -> Iterator[KernelLog]:
    """The real kernel log, opened at its end."""
    if not os.access(KMSG, os.R_OK | os.W_OK):
        pytest.skip("needs the right to read and write the kernel log")
    try:
        log = KernelLog()
    except OSError as error:
        pytest.skip(f"the kernel log may not be read: {error}")
    yield log
    log.close()


def say(text: str) -> None:
    """Writes a line into the kernel log."""
    Path(KMSG).write_text(text)


def behind(lines: list[str], token: str) -> list[str]:
    """What follows the token in the lines that have it."""
    return [line.partition(token)[2] for line in lines if token in line]


@pytest.mark.live
def test_live_log(live_log: KernelLog) -> None:
    """Lines that are written to the kernel's log are read at once, in order, and once."""
    token = f"rlhfdoctor-test-{uuid.uuid4().hex}: "
    say(f"<6>{token}one (a b)\n")
    say(f"<6>{token}two\\tabs\n")
    assert behind(live_log.read(), token) == ["one (a b)", "two\\tabs"]
    assert behind(live_log.read(), token) == []


@pytest.mark.live
def test_live_log_in_parts(live_log: KernelLog) -> None:
    """A read gives as many records as it was asked for, and the next goes on."""
    token = f"rlhfdoctor-test-{uuid.uuid4().hex}: "
    live_log.read()
    say(f"<6>{token}one\n")
    say(f"<6>{token}two\n")
    first = live_log.read(1)
    assert (len(first), behind([*first, *live_log.read()], token)) == (1, ["one", "two"])
