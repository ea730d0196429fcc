"""A section of the report: one module of `sections/`, shown in every form that it has a function for."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlhfdoctor.i18n.message import NOTHING, Language, Message
from rlhfdoctor.report.page import Page
from rlhfdoctor.types import Incident

if TYPE_CHECKING:
    from rlhfdoctor.charts import Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What a part of the report is in each form; a form without a function does not show it."""

    name: str
    """Key of the JSON report; the page's part is `sections/NAME.html`."""
    place: int
    """Sections are shown in ascending order."""
    title: Message = NOTHING
    """In the page's navigation."""
    has: Callable[[Incident], bool] = lambda incident: True
    """Whether there is something to show; the JSON report always has its key."""
    text: Callable[[Incident, Page], None] | None = None
    """Prints it on a terminal."""
    markdown: Callable[[Incident, Language], Iterator[str]] | None = None
    """Its lines of Markdown."""
    html: Callable[[Incident, Sequence[Chart], Language], dict[str, Any]] | None = None
    """Values for its template, beside the incident itself."""
    to_dict: Callable[[Incident], Any] | None = None
    """Its value in the JSON report."""


@functools.cache
def sections() -> tuple[Section, ...]:
    """Every section of `sections/`, in order."""
    package = import_module("rlhfdoctor.report.sections")
    modules = (import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__))
    return tuple(sorted((module.SECTION for module in modules), key=lambda section: section.place))
