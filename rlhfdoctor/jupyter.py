"""How incidents, comparisons, traces show themselves in a notebook; registered when used under IPython."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rlhfdoctor.errors import DoctorError

if TYPE_CHECKING:
    from rlhfdoctor.comparison import Comparison
    from rlhfdoctor.trace.tables import Trace
    from rlhfdoctor.types import Incident


@functools.cache
def register() -> None:
    """Registers with IPython; does nothing outside IPython."""
    from IPython import get_ipython  # type: ignore[import-not-found, unused-ignore]

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    if shell is None or not hasattr(shell, "display_formatter"):
        return
    formatters = shell.display_formatter.formatters
    for module, name in (("types", "Incident"), ("comparison", "Comparison"), ("trace.tables", "Trace")):
        formatters["text/plain"].for_type_by_name(f"rlhfdoctor.{module}", name, show_briefly)
    formatters["text/markdown"].for_type_by_name("rlhfdoctor.types", "Incident", show_incident)
    formatters["text/markdown"].for_type_by_name("rlhfdoctor.comparison", "Comparison", show_comparison)
    formatters["image/png"].for_type_by_name("rlhfdoctor.trace.tables", "Trace", show_trace)


def show_briefly(value: Any, page: Any, _cycle: bool) -> None:
    """One line in place of everything that it holds."""
    parts = {
        "Incident": lambda: f"{value.verdict}{f', {value.best.cause}' if value.best else ''}",
        "Comparison": lambda: f"{value.before.verdict} -> {value.after.verdict}, {len(value.figures)} figures",
        "Trace": lambda: f"{', '.join(node.node for node in value.nodes)}: {', '.join(value.names)}",
    }
    name = type(value).__name__
    page.text(f"<{name}: {parts[name]()}>")


def show_incident(incident: Incident) -> str:
    """The report as Markdown, in the language of the environment."""
    from rlhfdoctor.i18n.language import load_language, preferred
    from rlhfdoctor.report import markdown

    return markdown.render(incident, load_language(preferred()))


def show_comparison(found: Comparison) -> str:
    """The table of `doctor compare`."""
    from rlhfdoctor.cli.console import make_page, trimmed
    from rlhfdoctor.report import comparison

    page = make_page(to_file=True, width=120)
    comparison.render(found, page)
    return f"```text\n{trimmed(page)}```"


def show_trace(trace: Trace) -> bytes | None:
    """The picture of its first node; None if it cannot be drawn."""
    from rlhfdoctor.core.timeline import trace_charts
    from rlhfdoctor.i18n.language import load_language, preferred
    from rlhfdoctor.i18n.message import say
    from rlhfdoctor.report import picture

    try:
        first = trace.nodes[:1]
        return picture.render(
            trace_charts(first),
            say("{nodes}: memory over time", nodes=tuple(node.node for node in first)),
            "png",
            dpi=75,
            words=load_language(preferred()),
        )
    except DoctorError:
        return None
