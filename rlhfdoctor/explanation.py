"""The types of an explanation: what processes of a run held, by the parts of the budget that account for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlhfdoctor.i18n.message import NOTHING, Message, say
from rlhfdoctor.vocabulary.run import Component

COMPONENT_SAYS: Mapping[Component, Message] = {
    "weights": say("weights"),
    "optimizer": say("optimizer states"),
    "gradients": say("gradients"),
    "activations": say("buffers of a pass"),
    "load copy": say("copies while loading"),
    "resume copy": say("copies while reading a checkpoint"),
    "save copy": say("copies while saving"),
    "sleep copy": say("the sleeping engine's copy of its weights"),
    "swap blocks": say("the engine's swap blocks"),
    "page-lock rounding": say("rounding of page-locked buffers"),
    "object store": say("object store"),
    "process": say("the processes themselves"),
    "something else": say("something else"),
}
LIKELY = 0.6
"""From this probability on a part is named as the one that filled the memory; below it, those possible are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes that processes hold for one purpose."""

    component: Component
    bytes: int
    roles: tuple[str, ...] = ()
    """For whom, where several roles share the processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One row: processes of a kind with what they held, all of them together."""

    role: str
    name: str
    """As kernel, Ray or recorder call them."""
    count: int
    bytes: int
    largest_bytes: int
    """Of one process."""
    parts: tuple[Held, ...]
    """Largest first, under the most likely configuration; by the budget's error they may exceed what was measured."""

    @property
    def rest_bytes(self) -> int:
        """What no part explains; below 0 where the parts are too large."""
        return self.bytes - sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Who may have filled the memory, and with what."""

    role: str
    component: Component
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Measured bytes of each kind of process, explained by the budget's components."""

    basis: Message
    """What was measured, and by whom."""
    rows: tuple[Explained, ...]
    """The largest first."""
    suspects: tuple[Suspect, ...]
    """Of the largest row, the likeliest first; their probabilities add up to one."""
    passing: tuple[Suspect, ...] = ()
    """Copies made for a load or a save that the largest row may hold, with the probability that it does."""
    assumed: Message = NOTHING
    """The configuration and the phase under which the rows are explained."""
    is_guessed: bool = False
    """No configuration was at hand; `assumed` is the one that fits best."""
    on_gpus: bool = True
    """Models are on GPUs, so that optimizer states in host memory are offloaded ones."""
    victim_ratio: float | None = None
    """What the process that was killed held, of what the largest row's largest did; None if it was not measured."""

    @property
    def is_modelled(self) -> bool:
        """Whether the budget has more to say of any row than that processes take memory."""
        own = ("process", "object store")
        return any(part.component not in own for row in self.rows for part in row.parts)

    @property
    def total_bytes(self) -> int:
        """All that was measured."""
        return sum(row.bytes for row in self.rows)

    @property
    def likely(self) -> Suspect | None:
        """The suspect that stands out, or None where several explain the bytes about equally well."""
        return next((one for one in self.suspects if one.probability >= LIKELY), None)

    @property
    def copy(self) -> Suspect | None:
        """The copy for a load or a save that was most likely there, or None."""
        return next((one for one in self.passing if one.probability >= LIKELY), None)
