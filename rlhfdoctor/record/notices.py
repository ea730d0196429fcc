"""Reports in one line what happened to a run: an alarm, or its death.

By the user's command, and to the URLs of --notify. Each is a process of its own, started and never waited for, with a
time limit (send.py). The URLs hold tokens: they come by the environment, leave it before the job starts, and are
stored nowhere.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlhfdoctor.i18n.message import NOTHING, Message, joined, plural, quoted, say
from rlhfdoctor.interpreters import fresh
from rlhfdoctor.privacy.secrets import cut_line

VARIABLE = "RLHFDOCTOR_NOTIFY"
"""Holds the URLs, with white space between them."""
BELL = "bell"
"""In place of a URL: the terminal of `doctor watch` rings."""
_MOST = 50
"""Notices of a run: an alarm that comes and goes must not fill an inbox."""
_SEND = "from rlhfdoctor.record.send import main; sys.exit(main(sys.argv))"


def take_urls() -> tuple[str, ...]:
    """The URLs of our environment, which from now on does not hold them."""
    return tuple(url for url in os.environ.pop(VARIABLE, "").split() if url != BELL)


@dataclass(slots=True)
class Notices:
    """Whom to tell."""

    command: str | None = None
    """Run by a shell; RLHFDOCTOR_ALARM holds the text."""
    urls: Sequence[str] = ()
    run: str = ""
    """Name of the run and its host."""
    helpers: set[int] = field(default_factory=set)
    """Pids of what was started: not part of what is recorded."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _sent_count: int = 0

    def send(self, says: Message, *, name: str = "", level: str = "", left_s: float | None = None) -> None:
        """Starts the user's command and a process that sends to the URLs.

        Args:
            name, level: of the limit that it is about.
            left_s: until it is full.
        """
        if self.command:
            environment = {
                "RLHFDOCTOR_ALARM": str(says),
                "RLHFDOCTOR_LIMIT": name,
                "RLHFDOCTOR_LEVEL": level,
                "RLHFDOCTOR_LEFT_S": "" if left_s is None else f"{left_s:.0f}",
            }
            self._start(["/bin/sh", "-c", self.command], environment)
        if self.urls and self._sent_count < _MOST:
            self._sent_count += 1
            text = cut_line(str(joined(quoted(self.run), says, by=": ")))
            self._start(fresh(_SEND, text), {VARIABLE: " ".join(self.urls)}, stderr=None)

    def died(self, code: int | None, kill_count: int, after_s: float, step: int | None) -> None:
        """Reports that the run ended badly.

        Args:
            code: exit status, -N for signal N; None if it is not known.
            kill_count: processes of the run that the kernel killed for want of memory.
            after_s: since the recording began.
        """
        from rlhfdoctor.record.phrasing import say_exit

        facts = [
            NOTHING if step is None else say("step {number}", number=step),
            NOTHING if code is None else say_exit(code),
            plural("the kernel killed {n} process", "the kernel killed {n} processes", kill_count)
            if kill_count
            else NOTHING,
        ]
        how = joined(*facts, by=", ")
        self.send(
            say("the run died after {time:duration} ({how})", time=after_s, how=how)
            if code
            else say("the run ended after {time:duration} ({how})", time=after_s, how=how)
        )

    def _start(
        self, words: Sequence[str], environment: Mapping[str, str], stderr: int | None = subprocess.DEVNULL
    ) -> None:
        try:
            started = subprocess.Popen(
                words,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,  # the recorder's own is its log
                start_new_session=True,
            )
        except OSError:
            return
        self.helpers.add(started.pid)  # the recorder reaps it with the orphans
        self._started.append(started)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, started.pid, 0)
