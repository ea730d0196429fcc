"""Alerts when a limit is near, by forecast or by use; written to the trace, reported to people (in English).

An alert fires once when a limit is forecast to be reached within `--alert-at`, and again only
after the forecast has been well above for a while. Page cache never triggers one: limits count what
cannot be reclaimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rlhfdoctor.i18n.message import NOTHING, Message, say
from rlhfdoctor.record.limits import Limit
from rlhfdoctor.record.notices import Notices
from rlhfdoctor.vocabulary.limits import say_limit

_FULL_RATIO = 0.95
_REARM_RATIO = 1.5
_STEADY_COUNT = 3
"""This many consecutive forecasts must agree before an alert fires on a forecast alone."""


@dataclass(slots=True)
class Alarms:
    """Limits with an active alert."""

    alert_at_s: float
    notices: Notices = field(default_factory=Notices)
    active: dict[int, Message] = field(default_factory=dict)
    """Number of the limit -> what was said."""
    _agreed: dict[int, int] = field(default_factory=dict)
    _hanging: set[int] = field(default_factory=set)

    def check(self, limits: Iterable[Limit]) -> list[tuple[Limit, Message]]:
        """The alarms that fire now, with what they say."""
        fired, now = [], list(limits)
        self._forget({limit.uid for limit in now})
        for limit in now:
            says = self._says(limit)
            if not limit.hangs_s:
                self._hanging.discard(limit.uid)
            elif limit.uid not in self._hanging:  # worse than what stood before
                self._hanging.add(limit.uid)
                self.active.pop(limit.uid, None)
            if not says:
                if not self._near(limit, _REARM_RATIO):
                    self.active.pop(limit.uid, None)
                continue
            if limit.uid not in self.active:
                fired.append((limit, says))
                self.notices.send(says, name=limit.name, level=limit.level, left_s=limit.left_s)
            self.active[limit.uid] = says
        return fired

    def _forget(self, there: set[int]) -> None:
        """Drops what was known of limits that are gone."""
        for uid in [uid for uid in self._agreed.keys() | self.active.keys() if uid not in there]:
            self._agreed.pop(uid, None)
            self.active.pop(uid, None)
        self._hanging &= there

    def _near(self, limit: Limit, factor: float) -> bool:
        left = limit.left_s
        return (left is not None and left < self.alert_at_s * factor) or limit.full_ratio >= _FULL_RATIO - 0.05

    def _says(self, limit: Limit) -> Message:
        label = say_limit(limit.name, limit.level)
        if limit.hangs_s:
            return say(
                "the run hangs at the {limit}, which is full: pages of its programs are evicted and read back",
                limit=label,
            )
        if limit.left_s is not None and limit.left_s <= self.alert_at_s:
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
