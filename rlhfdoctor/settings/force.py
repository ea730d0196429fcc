"""Which value of a setting was in force: what the log of the run shows, else what the files say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlhfdoctor.settings.spell import FRAMEWORKS
from rlhfdoctor.types import Difference, Differences, Setting, Value

LOGGED = ("dump", "argv")
"""Forms that only a log, or what the recorder copied, shows."""
_MANY = 3
_MANY_RATIO = 0.34


def in_force(settings: Iterable[Setting], *, files_first: bool = False) -> dict[str, Setting]:
    """Every setting in force, by canonical name.

    Args:
        files_first: of a run that is planned: its files say more of it than the log of an earlier one.
    """
    own, logged = _by_name(settings)
    found = {name: rows[-1] for name, rows in own.items()}
    for name, rows in logged.items():
        shown = _best(rows)
        mine = found.get(name)
        if mine is None or (not files_first and _overrules(shown, mine)):
            found[name] = shown
    return found


def find_differences(settings: Iterable[Setting]) -> Differences:
    """The settings whose value in the log is not that of any of the user's files."""
    own, logged = _by_name(settings)
    found: list[Difference] = []
    compared = 0
    for name, rows in own.items():
        shown = _best(logged[name]) if name in logged else None
        if shown is None or not _overrules(shown, rows[-1]) or not all(_is_plain(row.value) for row in rows):
            continue
        compared += 1
        if not any(is_same(row.value, shown.value) for row in rows):
            found.append(Difference(own=rows[-1], logged=shown))
    many = len(found) >= _MANY and len(found) >= _MANY_RATIO * compared
    return Differences(settings=tuple(found), compared_count=compared, another_run=many)


def is_same(one: Value, two: Value) -> bool:
    """Whether two spellings of a value mean the same: `1e-6` and `1e-06`, `x/model` and `/data/x/model`."""
    if isinstance(one, bool) or isinstance(two, bool) or one is None or two is None:
        return str(one).lower() == str(two).lower()
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= 1e-9 * max(abs(one), abs(two))
    left, right = ("".join(str(value).split()).strip("'\"").replace('"', "'") for value in (one, two))
    return left == right or (bool(left and right) and (left.endswith(right) or right.endswith(left)))


def _by_name(settings: Iterable[Setting]) -> tuple[dict[str, list[Setting]], dict[str, list[Setting]]]:
    own: dict[str, list[Setting]] = {}
    logged: dict[str, list[Setting]] = {}
    for setting in settings:
        (logged if setting.form in LOGGED else own).setdefault(setting.name, []).append(setting)
    return own, logged


def _best(rows: Sequence[Setting]) -> Setting:
    """The last that the framework prints; of a library, which prints one configuration an engine, the first."""
    return next((row for row in reversed(rows) if row.framework in FRAMEWORKS), rows[-1])


def _overrules(shown: Setting, own: Setting) -> bool:
    """Whether a logged value is that of the same setting; None is what many print for a value not yet decided."""
    return shown.value is not None and shown.framework == own.framework


def _is_plain(value: Value) -> bool:
    """Whether a file says the value itself, not where it comes from: `$LR`, `auto`, `${model.path}`."""
    return not isinstance(value, str) or ("$" not in value and value != "auto")
