"""A setting as it is written: reading comes before the framework, whose table interprets it, is known."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.spell import FRAMEWORKS, Spelling, load_table, lookup
from rlhfdoctor.types import Origin, Setting, Value
from rlhfdoctor.units import in_unit
from rlhfdoctor.vocabulary import TRAIT

_MOST = 1e15
"""Of a setting: a petabyte, or steps for ever."""


@dataclass(frozen=True, slots=True)
class Written:
    """A setting before a table gives it its name."""

    spelled: str
    value: Value
    origin: Origin
    form: str
    span: tuple[int, int] | None = None
    owner: str | None = None
    """Table that takes precedence over that of the framework: an option of `docker run`."""
    plus: str = ""
    """Hydra's `+` or `++`."""
    quoted: bool = False
    """Quoted in YAML: always a text."""
    name: str = ""
    """Canonical name within the owner's table, if the place alone determines it: an argument in Python."""
    tail: str = ""
    """Last part of the key where lines above were cut out of a dump; only one setting may end in it."""


def interpret(written: Iterable[Written], prefer: str | None = None) -> list[Setting]:
    """The settings under their canonical names.

    Args:
        prefer: framework whose table takes precedence if a spelling is in several.
    """
    found = (_interpret(one, prefer) for one in written)
    return [setting for setting in found if setting is not None]


def _interpret(written: Written, prefer: str | None) -> Setting | None:
    spelled, value, form, span = written.spelled, written.value, written.form, written.span
    if written.tail:
        whole = _unique_tails(prefer).get(written.tail)
        if whole is None:
            return None
        spelled = whole
    if written.name:
        return Setting(
            name=written.name,
            spelled=spelled,
            value=value,
            framework=written.owner or "",
            origin=written.origin,
            form=form,
            span=span,
        )
    known: Spelling | None = lookup(spelled, written.owner or prefer)
    if (
        known is not None
        and known.framework == "container"
        and written.owner is None
        and form not in ("yaml", "sbatch")
    ):
        known = None
    if written.owner and form == "dump" and known is not None and known.framework != written.owner:
        known = None  # the library's own setting, which a framework happens to spell alike
    if (
        known is None
        and spelled.startswith("--")
        and not written.owner
        and prefer
        and folders.has(prefer, TRAIT.flags_from_fields)
    ):
        known = _field(spelled[2:], prefer)
        if known is None and value is True and spelled.startswith("--no_") and (known := _field(spelled[5:], prefer)):
            value, form, span = False, "argv", None  # shown, not edited
    if known is None and form == "yaml" and spelled.endswith("resources.limits.memory"):
        known = lookup("resources.limits.memory")
    plain = _possible(scalar(value) if isinstance(value, str) and not written.quoted else value)
    factor = known.factor if known else 1
    return Setting(
        name=known.name if known else spelled.lstrip("-").replace("-", "_"),
        spelled=written.plus + spelled,
        value=in_unit(plain, 1 / factor),
        framework=known.framework if known else "",
        origin=written.origin,
        form=form,
        span=span,
        factor=factor,
    )


def _possible(value: Value) -> Value:
    """A number that a setting can have; beyond any, its text: what is computed with it would be no number any more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) <= _MOST:
        return value
    return f"{value:.3g}" if abs(value) < _MOST**2 else "a number beyond all"


def _field(name: str, framework: str) -> Spelling | None:
    found = lookup(name, framework)
    return found if found is not None and found.framework == framework else None


@functools.cache
def _unique_tails(framework: str | None) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for table in {*folders.having(TRAIT.prints_configuration), *({framework} & {*FRAMEWORKS})}:
        for spelling in load_table(table):
            if spelling.form in ("hydra", "yaml"):
                found.setdefault(spelling.spelled.rsplit(".", 1)[-1], set()).add(spelling.spelled)
    return {
        tail: next(iter(paths))
        for tail, paths in found.items()
        if len(paths) == 1 and tail not in ("name", "n", "path", "mode")
    }


def scalar(text: str) -> Value:
    """The value of a bare word: a truth value, nothing, a number, or the text."""
    lowered = text.strip().lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    if lowered in ("null", "none", "~", ""):
        return None
    return number(text)


def number(text: str) -> Value:
    """The value of a number or a simple product; else the text."""
    clean = text.strip().strip("'\"").replace("_", "")
    if re.fullmatch(r"[+-]?\d{1,18}", clean):
        return int(clean)
    if re.fullmatch(_REAL, clean):
        return _finite(float(clean), text)
    whole = re.fullmatch(rf"int\(({_REAL})\)", clean)
    if whole:
        return _finite(float(whole[1]), text) if not math.isfinite(float(whole[1])) else int(float(whole[1]))
    product = re.fullmatch(rf"(?:int\()?({_REAL}) ?\* ?(?:1024 ?\*\* ?([1-6])|({_REAL}))\)?", clean)
    if product:
        factor = 1024.0 ** int(product[2]) if product[2] else float(product[3])
        value = _finite(float(product[1]) * factor, text)
        return int(value) if isinstance(value, float) else value
    return text.strip()


_REAL = r"[+-]?(?:\d{1,40}\.\d{0,40}|\.\d{1,40}|\d{1,40})(?:[eE][+-]?\d{1,3})?"


def _finite(value: float, text: str) -> Value:
    return value if math.isfinite(value) else text.strip()
