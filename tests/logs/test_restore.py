"""Lines as a program wrote them: what a paste made of them is taken back, in linear time."""

from __future__ import annotations

import pytest

from rlhfdoctor.logs.anchor import tolerant
from rlhfdoctor.logs.pattern import compiled
from rlhfdoctor.logs.restore import restored
from tests.build import read_kind

KILL = "Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, shmem-rss:8kB"
_BLANK = KILL.rindex(" ", 0, 80)
FIELDS = {"pid": 4711, "comm": "python3", "anon_bytes": 1169716 * 1024, "shmem_bytes": 8192}


@pytest.mark.parametrize(
    "text",
    [
        f"> > {KILL}",
        f"│ {KILL} │",
        f"trainer-1  | {KILL}",
        f"  212  {KILL}",
        f"dmesg.txt:9812:{KILL}",
        f"- `{KILL}`",
        f"{KILL[:80]}\n{KILL[80:]}",
        f"{KILL[:_BLANK]}\n{KILL[_BLANK + 1 :]}",
        f"> {KILL[:_BLANK]}\n> {KILL[_BLANK + 1 :]}",
        '{"log": "' + KILL + '\\n", "stream": "stderr"}',
        KILL.replace(": K", "：K").replace(", ", "，").replace(" (", "（").replace(") ", "）"),
        KILL.replace(" ", "\u00a0"),
        KILL.replace("(", "&#40;").replace(")", "&#41;"),
    ],
)
def test_every_field_comes_back(text: str) -> None:
    """However the line is decorated, translated or wrapped, it is one event with all its fields, on its first line."""
    found = read_kind(f"nothing of note\n{text}\nnothing more\n", "kernel.killed")
    assert [({key: event.fields.get(key) for key in FIELDS}, event.origin.line) for event in found] == [(FIELDS, 2)]


@pytest.mark.parametrize(
    "text",
    [
        KILL.split(" total")[0],
        KILL.split("file-rss")[0] + "...",
        KILL.split("-rss")[0],
        KILL.replace("total-vm:9008816kB, ", "[...] "),
    ],
)
def test_fields_may_be_missing(text: str) -> None:
    """What is cut off is missing; the event is there with what is left."""
    (event,) = read_kind(text, "kernel.killed")
    assert (event.fields["pid"], event.fields["comm"]) == (4711, "python3")


def test_plain_text_is_left_alone() -> None:
    """A log without marks has no other version."""
    assert restored("INFO a line\nINFO another, longer one than the first of them\n" + "x" * 300) == []


def test_a_traceback_is_not_joined() -> None:
    """Indented code behind the longest line is no rest of it."""
    text = '  File "/opt/verl/workers/fsdp_workers.py", line 463, in generate_sequences\n    self.rollout.run()\n'
    assert [event.fields["function_text"] for event in read_kind(text, "python.frame")] == ["generate_sequences"]


@pytest.mark.parametrize("char", [" ", "|", "> ", "\\n", "&lt;", "：", "1:", '\\"', "[ 1"])
def test_long_lines_cost_what_they_are_long(char: str) -> None:
    """A line of one decoration only is worked through; a quadratic step would not end here."""
    assert read_kind("x" + char * 200_000 + "x\n", "kernel.killed") == []


@pytest.mark.parametrize(
    ("regex", "text", "found"),
    [
        (r"Memory was exceeded by task (?P<pid>\d+) in (?P<name>\w+)", "Memory was exceeded by task 7", True),
        (r"Memory was exceeded by task (?P<pid>\d+) in (?P<name>\w+)", "Memory was exceeded by task 7 on a host", False),
        (r"the process ended with code (?:137|139)\b", "the process ended with code 1", False),
        (r"the process ended with code 137", "the process ended with code ...", False),
        (r"short (?P<pid>\d+) x", "short 7", False),
    ],
)
def test_anchor(regex: str, text: str, found: bool) -> None:
    """Behind enough words a message may be cut, but not before what tells it apart from another."""
    assert (compiled(tolerant(regex)).search(text) is not None) == found
