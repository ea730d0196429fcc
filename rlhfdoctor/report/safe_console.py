"""A console on which only its own colours are control characters, whatever is printed on it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment

from rlhfdoctor.report.sanitize import shown


class SafeConsole(Console):
    """As rich's; every piece of text is made visible before it gets its colour."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            [segment if segment.control else segment._replace(text=shown(segment.text)) for segment in buffer]
        )
