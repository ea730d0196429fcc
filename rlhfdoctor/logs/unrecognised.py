"""Lines at the end of a log that read like a failure but that no pattern knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rlhfdoctor.logs.open import Source
from rlhfdoctor.types import Event, Origin
from rlhfdoctor.vocabulary import EVENT

_TAIL_BYTES = 16 * 1024
_LINE_COUNT = 3
"""Lines kept of a file, the last ones."""
_LONGEST = 2000
_FAILURE = re.compile(
    r"\b(?:FATAL|CRITICAL|PANIC|ERROR|SEVERE|EMERG)\b"
    r"|\b[A-Za-z]{1,60}(?:Error|Exception)\b"
    r"|\bSIG(?:KILL|TERM|SEGV|BUS|ABRT|INT|HUP|QUIT|FPE|ILL|XCPU)\b"
    r"|(?i:\b(?:fatal|panic|core dumped|segmentation fault|abort(?:ed|ing)|crash(?:ed|ing)?|terminated|killed|evicted"
    r"|panicked|preempted|cancell?ed|out of memory|oom|fail(?:ed|ure)|error)\b)"
    r"|(?i:\bexit(?:ed)?(?: with)?(?: status| code)? ?[:=]? ?-?[1-9]\d{0,2}\b)|(?i:\bsignal ?[:=]? ?\d{1,2}\b)"
    r"|错误|失败|异常|崩溃|终止|中止|被杀|杀死|致命|退出码|内存不足|显存不足|段错误|超时"
)
"""Severity words, exception names, signals, exit statuses, words for an end, in English and Chinese."""
_HARMLESS = re.compile(
    r"(?i:\b(?:no|0|zero|without) (?:\w{1,20} )?(?:errors?|failures?)\b|\b(?:errors?|failed|failures?)[\"']? ?[:=] ?"
    r"(?:0\b|none|null|false|\[\])|\bfail\w{0,4} [\w ()/]{0,40}: ?0\b|\bretry|\bretries|\bwarn|deprecat|\bignor"
    r"|\berror[_-]\w|\bloss\b|\bif \w{1,40} fail"
    r"|^\W*(?:raise|return|assert|except) )"
    r"|\b(?:INFO|DEBUG|TRACE)\b|^\[[\d :,.-]{10,40} [IWD] \d"
    r"|无错误|没有错误|重试|警告|忽略"
)

_SERVICE = re.compile(
    r"(?:raylet|gcs_server|monitor|log_monitor|dashboard|runtime_env|agent|ray_client|event_[A-Z]|python-core-)[\w-]*[.-]"
)
"""Files of Ray's own services (ray/_private/ray_constants.py)."""


class Tail:
    """The end of a log while it is read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept = b""
        self._known: set[int] = set()

    def stream(self) -> Iterator[bytes]:
        """The bytes of the source."""
        for block in self._source.stream():
            self._kept = (self._kept + block if len(block) < _TAIL_BYTES else block)[-_TAIL_BYTES:]
            yield block

    def know(self, event: Event) -> Event:
        """Remembers that a pattern knows this line."""
        if event.origin.line is not None:
            self._known.add(event.origin.line)
        return event

    def unrecognised(self, line_count: int, matches: Callable[[bytes], bool]) -> list[Event]:
        """The last lines that read like a failure, in order; Ray's services log their peers' ends at any shutdown.

        Args:
            line_count: how many line ends the whole log has.
            matches: whether a pattern matches a line; it may do so and be left out of the events, as one of many.
        """
        if _SERVICE.match(self._source.name.rpartition("!")[2].rpartition("/")[2]):
            return []
        first = line_count - self._kept.count(b"\n") + 1
        found: list[Event] = []
        for number, line in reversed(list(enumerate(self._kept.split(b"\n"), first))):
            text = line.rpartition(b"\r")[2][:_LONGEST].decode("utf-8", "replace").strip()
            if number in self._known or not _FAILURE.search(text) or _HARMLESS.search(text) or matches(line):
                continue
            origin = Origin(file=self._source.name, line=number, host=self._source.host)
            found.append(Event(kind=EVENT.job.unrecognised, fields={}, origin=origin, text=text))
            if len(found) == _LINE_COUNT:
                break
        return found[::-1]
