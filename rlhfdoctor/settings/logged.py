"""What log lines show of the configuration: argument lists, overrides, commands, variables, dumps, Ray's threshold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlhfdoctor.i18n.message import plural, quoted, say
from rlhfdoctor.settings.dump import Dump, own_lines, speaker
from rlhfdoctor.settings.read import OVERRIDE, parse_shell
from rlhfdoctor.settings.written import Written
from rlhfdoctor.types import Event, Gap, Origin, Value
from rlhfdoctor.vocabulary import EVENT, FIELD

_FLAG = re.compile(r"^(?P<key>--?[A-Za-z][\w.-]*)(?:=(?P<value>.*))?$", re.S)
_ARGUMENT = re.compile(r"\s{0,60}(?:--[A-Za-z]|[+~]{0,2}[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,12}=)")
"""A line of a command that can only be a continuation: an option or an override."""
_PAIR = re.compile(
    r"['\"](?P<key>[A-Z][A-Za-z0-9_]{2,80})['\"]\s?[:：]\s?(?P<value>'[^'\n]{0,2000}'|\"[^\"\n]{0,2000}\")"
)
_NCCL = re.compile(r"(?P<key>NCCL_\w{1,60}) set by environment to (?P<value>[^\s,]{1,200})")
_SHELL_SIGNS = str.maketrans("，：＝－—–“”‘’　", ",:=---\"\"'' ")
_LONG_DASH = re.compile(r"(?<!\S)[—–－](?=[a-z])")
"""What forums make of `--`."""
_MOST_LINES = 400
_MOST_LETTERS = 1 << 20
"""Of commands or variables that logs show, as bytes of plain text; the first ones count."""


def parse_every_logged(events: Iterable[Event], gaps: list[Gap]) -> list[Written]:
    """The settings that logs show; what is only printed again is left out, and of a library its first engine counts."""
    found: dict[tuple[str, str, str | None], Written] = {}
    kept: list[Written] = []
    letters = passed = 0
    for event in events:
        if event.kind.scope not in ("config", "ray"):
            continue
        letters += _letters(event)
        if letters > _MOST_LETTERS:
            letters -= _letters(event)
            passed += 1
            continue
        for written in parse_logged(event, gaps):
            key = (written.origin.file, written.spelled, written.owner)
            before = found.get(key)
            if before is not None and (written.owner or before.value == written.value):
                continue
            found[key] = written
            kept.append(written)
    if passed:
        shown = plural("{n} place of the logs", "{n} places of the logs", passed)
        why = say("{shown} not looked at: those before were {most:bytes}", shown=shown, most=_MOST_LETTERS)
        gaps.append(Gap(what=say("the configuration that logs show"), why=why))
    return kept


def _letters(event: Event) -> int:
    """How long what is read as words of a shell is: that is done letter by letter."""
    if event.kind == EVENT.config.command:
        return sum(len(line) for _, line in _continued(event))
    return len(str(event.fields.get(FIELD.list_text, ""))) if event.kind == EVENT.config.variable else 0


def parse_logged(event: Event, gaps: list[Gap] | None = None) -> Iterator[Written]:
    """Settings that a log line shows, with the line of each.

    Args:
        gaps: takes a dump of which a part is known to be missing.
    """
    if event.kind in (EVENT.config.argv, EVENT.config.overrides):
        for word in _words(str(event.fields.get(FIELD.list_text, ""))):
            yield from _logged_word(event, word)
        yield from _logged_pairs(event)
    elif event.kind == EVENT.config.dump:
        yield from _dumped(event, gaps)
    elif event.kind == EVENT.config.command:
        yield from _command(event)
    elif event.kind == EVENT.config.variable:
        yield from _variables(event)
    elif event.kind == EVENT.config.engine_share:
        share = _of_line(event, "gpu_memory_utilization", float(str(event.fields[FIELD.wanted_ratio])))
        yield replace(share, owner="vllm", name="rollout.gpu_memory_utilization")
    elif FIELD.threshold_ratio in event.fields:
        ratio = event.fields[FIELD.threshold_ratio]
        if isinstance(ratio, int | float):  # no text, as of a figure that is damaged or endless
            yield _of_line(event, "RAY_memory_usage_threshold", float(ratio))


def _dumped(event: Event, gaps: list[Gap] | None) -> Iterator[Written]:
    whole = event.fields.get(FIELD.list_text)
    head = f"{speaker(event.text)} {whole}" if whole else event.text  # the text of an event may be cut
    dump = Dump((head, *event.after), event.origin)
    count = 0
    for written in dump.settings():
        count += 1
        yield written
    if count and dump.cut and gaps is not None:
        gaps.append(
            Gap(
                what=quoted(str(event.origin)),
                why=say(
                    "the configuration printed there is not whole; {settings} of it read",
                    settings=plural("{n} setting", "{n} settings", count),
                ),
            )
        )


def _command(event: Event) -> Iterator[Written]:
    """Of a command as `set -x` or a person shows it, with the lines that continue it."""
    kept = _continued(event)
    places = [place for place, _ in kept]
    text = " \\\n".join(line.rstrip().removesuffix("\\") for _, line in kept)
    for written in parse_shell(event.origin.file, text):
        yield _shown(event, written, places[min((written.origin.line or 1) - 1, len(places) - 1)])


def _continued(event: Event) -> list[tuple[int, str]]:
    """The lines of a command, each with its place behind the first."""
    first = str(event.fields.get(FIELD.list_text, ""))
    lines = [(0, first), *own_lines((event.text, *event.after))[1:_MOST_LINES]]
    kept: list[tuple[int, str]] = []
    for place, line in lines:
        if place and not kept[-1][1].rstrip().endswith("\\") and _ARGUMENT.match(line) is None:
            break
        kept.append((place, _LONG_DASH.sub("--", line).translate(_SHELL_SIGNS)))
    return kept


def _shown(event: Event, written: Written, place: int) -> Written:
    line = None if event.origin.line is None else event.origin.line + place
    return replace(written, origin=replace(written.origin, line=line), form="argv", span=None)


def _variables(event: Event) -> Iterator[Written]:
    """Of `export A=b`, `declare -x A="b"`, a line of `env`, Ray's `env_vars`, NCCL's own notes."""
    text = str(event.fields.get(FIELD.list_text, ""))
    if "to avoid fragmentation" in event.text:  # torch's advice, which a narrow screen has wrapped
        return
    pairs = [*_PAIR.finditer(text), *_NCCL.finditer(text)]
    plain = " ".join(f"{pair['key']}={_shell_quoted(pair['value'])}" for pair in pairs) if pairs else text
    for written in parse_shell(event.origin.file, plain.translate(_SHELL_SIGNS)):
        if written.form == "env":
            yield _shown(event, written, 0)


def _shell_quoted(value: str) -> str:
    inner = value.strip("'\"")
    return "'" + inner.replace("'", "") + "'"


def _words(text: str) -> list[str]:
    try:
        parsed = ast.literal_eval(text)
        return [str(word) for word in parsed] if isinstance(parsed, list) else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return re.findall(r"'([^']*)'", text)


def _logged_word(event: Event, word: str) -> Iterator[Written]:
    override = OVERRIDE.match(word)
    flag = _FLAG.match(word)
    if override:
        yield _of_line(event, override["key"], override["value"])
    elif flag and flag["value"] is not None:
        yield _of_line(event, flag["key"], flag["value"])


def _logged_pairs(event: Event) -> Iterator[Written]:
    words = _words(str(event.fields.get(FIELD.list_text, "")))
    if not words:
        return
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--") and "=" not in word:
            yield _of_line(event, word, True if following.startswith("--") else following)


def _of_line(event: Event, spelled: str, value: Value) -> Written:
    return Written(spelled, value, Origin(file=event.origin.file, line=event.origin.line), "argv")
