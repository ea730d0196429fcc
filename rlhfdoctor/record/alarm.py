"""Alerts when a limit is near, by forecast or by use; written to the trace, passed to a command (in English).

An alert fires once when a limit is forecast to be reached within `--alert-at`, and again only
after the forecast has been well above for a while. Page cache never triggers one: limits count what
cannot be reclaimed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlhfdoctor.i18n.message import NOTHING, Message, say
from rlhfdoctor.record.limits import Limit
from rlhfdoctor.vocabulary.limits import say_limit

_FULL_RATIO = 0.95
_REARM_RATIO = 1.5
_REACH = 3
"""An alert looks ahead at most this multiple of the time span in which the growth was observed."""
_HALF, _LONG_SEEN_S = 0.5, 30.0
"""A start-up fills quickly and stops: below half of the limit, growth must have been observed for this long."""
_STEADY_COUNT = 3
"""This many consecutive forecasts must agree before an alert fires on a forecast alone."""


@dataclass(slots=True)
class Alarms:
    """Limits with an active alert."""

    alert_at_s: float
    command: str | None = None
    helpers: set[int] = field(default_factory=set)
    """Pids of the commands that were run: not part of what is recorded."""
    active: dict[int, Message] = field(default_factory=dict)
    """Number of the limit -> what was said."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _agreed: dict[int, int] = field(default_factory=dict)

    def check(self, limits: Iterable[Limit]) -> list[tuple[Limit, Message]]:
        """The alarms that fire now, with what they say."""
        fired = []
        for limit in limits:
            says = self._says(limit)
            if not says:
                if not self._near(limit, _REARM_RATIO):
                    self.active.pop(limit.uid, None)
                continue
            if limit.uid not in self.active:
                fired.append((limit, says))
                self._run(limit, str(says))
            self.active[limit.uid] = says
        return fired

    def _near(self, limit: Limit, factor: float) -> bool:
        left = limit.left_s
        return (left is not None and left < self.alert_at_s * factor) or limit.full_ratio >= _FULL_RATIO - 0.05

    def _says(self, limit: Limit) -> Message:
        label = say_limit(limit.name, limit.level)
        seen_s = limit.forecast.growth.seen_s if limit.forecast is not None else 0.0
        credible = limit.full_ratio >= _HALF or seen_s >= _LONG_SEEN_S
        if limit.left_s is not None and limit.left_s <= min(self.alert_at_s, seen_s * _REACH) and credible:
            self._agreed[limit.uid] = self._agreed.get(limit.uid, 0) + 1
            if self._agreed[limit.uid] >= _STEADY_COUNT or limit.left_s < 10:
                return say(
                    "{limit} will be full in {left:duration} ({used:bytes} of {size:bytes})",
                    limit=label,
                    left=limit.left_s,
                    used=limit.used_bytes,
                    size=limit.limit_bytes,
                )
        else:
            self._agreed[limit.uid] = 0
        if limit.full_ratio >= _FULL_RATIO and limit.name != "node":
            return say(
                "{limit} is {full:.0%} full ({used:bytes} of {size:bytes})",
                limit=label,
                full=limit.full_ratio,
                used=limit.used_bytes,
                size=limit.limit_bytes,
            )
        return NOTHING

    def _run(self, limit: Limit, text: str) -> None:
        """Starts the user's command and never waits for it."""
        if not self.command:
            return
        environment = {
            **os.environ,
            "RLHFDOCTOR_ALARM": text,
            "RLHFDOCTOR_LIMIT": limit.name,
            "RLHFDOCTOR_LEVEL": limit.level,
            "RLHFDOCTOR_LEFT_S": "" if limit.left_s is None else f"{limit.left_s:.0f}",
        }
        try:
            started = subprocess.Popen(
                ["/bin/sh", "-c", self.command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return
        self.helpers.add(started.pid)  # the recorder reaps it with the orphans
        self._started.append(started)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, started.pid, 0)
