"""Messages are taken out of source code with their places filled, and nothing else is."""

from __future__ import annotations

import yaml

from tests.speakers import extract
from tests.speakers.speakers import HERE, groups

PYTHON = '''
def save(self, path, *, timeout):
    """Out of memory is reported in a docstring."""
    logger.warning("worker %s was killed after %d s", path, timeout)
    message = "killed, but nobody says it"
    raise RuntimeError(f"Out of memory: {path} needs {timeout:.2f} GiB " + "more\\nand a second line of it")
'''
C = """
static int extend(void) { // WARN("no memory in a comment %d", 1);
  WARN("Error: failed to extend %s to %zu bytes, error: %s (%d)",
       path, size, strerror(errno), errno);
  error("job %" PRIu64 " was killed", id);
  RAY_LOG(ERROR) << "Disk is full: " << path << " has only " << free << " bytes left.";
}
"""


def test_python() -> None:
    """Logged, raised, added and formatted text; an exception has its class before it."""
    assert list(extract.of_python(PYTHON)) == [
        "worker 7 was killed after 7 s",
        "RuntimeError: Out of memory: 7 needs 7 GiB more",
        "and a second line of it",
    ]


def test_c() -> None:
    """Formats of printf, of slurm and of streams; comments are none."""
    assert list(extract.of_c(C)) == [
        "Error: failed to extend 7 to 7 bytes, error: 7 (7)",
        "job 7 was killed",
        "Disk is full: 7 has only 7 bytes left.",
    ]


def test_strings() -> None:
    """Symbols and code are no messages."""
    assert list(extract.of_strings("_ZN3c10E out of memory\nPool is full {\nDisk 7 is full\n")) == ["Disk 7 is full"]


def test_every_group_has_a_reason() -> None:
    """What is left out is said to be, for programs that are read."""
    programs = {row["program"] for row in yaml.safe_load((HERE / "speakers.yaml").read_text())}
    assert [g.name for g in groups() if not g.why or not set(g.programs) <= programs] == []
