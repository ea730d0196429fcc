"""Edits of text: one value replaced, added or removed, every other byte left as it is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhfdoctor.settings.shell import read_tokens
from rlhfdoctor.settings.spell import Spelling, is_word
from rlhfdoctor.types import Replacement, Setting
from rlhfdoctor.units import in_unit


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file, by places of its text."""

    file: str
    line: int
    """Line of the change, from 1."""
    replacements: tuple[Replacement, ...]


_SIZE = re.compile(r"\d{1,12}[mg]")
"""Of memory, in MiB or GiB."""


def as_written(value: Any, spelled: str, factor: float) -> Any:
    """A new value as a spelling takes it: in its unit, rounded up to a whole one; DeepSpeed's offload by its device.

    A size of memory is given as docker takes it. Kubernetes has Mi for it, where `m` is a thousandth of a byte
    (kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity), slurm M (sbatch(1)).

    >>> as_written(5000, "--distributed-timeout-minutes", 60)
    84
    >>> as_written(True, "zero_optimization.offload_param.device", 1)
    'cpu'
    >>> as_written("375m", "spec.containers.resources.limits.memory", 1), as_written("24g", "--mem", 1)
    ('375Mi', '24G')
    """
    if isinstance(value, str) and _SIZE.fullmatch(value):
        if spelled.endswith("resources.limits.memory"):
            return f"{value[:-1]}{value[-1].upper()}i"
        return value.upper() if spelled == "--mem" else value
    if isinstance(value, bool):
        return ("cpu" if value else "none") if spelled.endswith(".device") else value
    there = in_unit(value, factor)
    return there if factor == 1 or not isinstance(there, float) else math.ceil(there)


def change_setting(own: Setting, value: Any, text: str) -> Edit | None:
    """The setting's value replaced in place, in the file's own style."""
    if own.span is None or not _can_be_written(value, own.form):
        return None
    start, end = own.span
    old = text[start:end]
    if own.form in ("yaml", "json"):
        new = _document_value(value, old, own.form)
        if not old and text[start - 1 : start] == ":":
            start, new = start - 1, f": {new}"
    elif own.form == "flag" and own.value is True:
        return None  # a switch that is present is already on
    elif own.spelled in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF") or "=" in own.spelled:
        return None
    else:
        new = _shell_value(value, old, text, start)
    return _edit(own, Replacement(start, end, new))


def remove_setting(own: Setting, text: str) -> Edit | None:
    """A switch taken out; a line that held only the switch is removed."""
    if own.span is None:
        return None
    start, end = own.span
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    rest = text[line_start:start] + text[end:line_end]
    if rest.replace("\\", "").strip() == "":
        line = Replacement(line_start, min(line_end + 1, len(text)), "")
        before = re.search(r"[ \t]*\\(?=\r?\n\Z)", text[:line_start])
        if before is not None and not rest.rstrip().endswith("\\"):  # it was the last line of the command
            return _edit(own, Replacement(*before.span(), ""), line)
        return _edit(own, line)
    gap = 1 if text[end : end + 1] == " " else 0
    return _edit(own, Replacement(start, end + gap, ""))


def add_setting(spelling: Spelling, value: Any, texts: Mapping[str, str], settings: Sequence[Setting]) -> Edit | None:
    """A setting added next to its nearest relatives; None if there are none."""
    if value is None or (value is False and spelling.form == "flag") or not _can_be_written(value, spelling.form):
        return None
    if spelling.form in ("flag", "hydra"):
        return _add_word(spelling, value, texts, settings)
    if spelling.form in ("yaml", "json"):
        return _add_key(spelling, value, texts, settings)
    if spelling.form == "env":
        return _add_export(spelling, value, texts, settings)
    return None


def _add_word(spelling: Spelling, value: Any, texts: Mapping[str, str], settings: Sequence[Setting]) -> Edit | None:
    """A flag or override after the last one of the same framework, on a line of its own if they have one."""
    own = [
        s
        for s in settings
        if s.framework == spelling.framework and s.form == spelling.form and s.span and s.origin.file in texts
    ]
    if not own:
        return None
    last = own[-1]
    text = texts[last.origin.file]
    if last.span is None:
        return None
    end = last.span[1]
    shown = _plain(value)
    plus = "+" if spelling.row.get("plus") else ""
    if spelling.form == "hydra":
        word = f"{plus}{spelling.spelled}={_plain(value, python=True)}"
    elif value is True:
        word = spelling.spelled
    else:
        word = f"{spelling.spelled} {shown}"
    line_start = text.rfind("\n", 0, end) + 1
    indent = re.match(r"[ \t]*", text[line_start:])
    alone = indent is not None and text[line_start + indent.end() :].startswith(("-", "+", last.spelled))
    around = [t for t in read_tokens(text) if t.start <= end - 1 < t.end]
    token = min(around, key=lambda t: t.end - t.start, default=None)  # a word, not the quotes around it
    token_end = token.end if token is not None else end
    if token is not None and token.nested and not text[:line_start].rstrip("\r\n").endswith("\\"):
        alone = False  # in quotes a backslash may be a word of its own
    if not alone or indent is None:
        return _insertion(last, token_end, f" {word}")
    tail = text[token_end:]
    continued = re.match(r"[ \t]*\\\r?\n", tail)
    if continued and not tail[continued.end() :].strip(" \t").startswith(("\n", "\r")):
        return _insertion(last, token_end, f"{continued[0]}{indent[0]}{word}", below=1)
    return _insertion(last, token_end, f" \\{_newline(text)}{indent[0]}{word}", below=1)


def _add_key(spelling: Spelling, value: Any, texts: Mapping[str, str], settings: Sequence[Setting]) -> Edit | None:
    """A key next to a sibling in the same mapping of a YAML or JSON file."""
    parent = spelling.spelled.rpartition(".")[0]
    siblings = [
        s
        for s in settings
        if s.form == spelling.form and s.span and s.origin.file in texts and s.spelled.rpartition(".")[0] == parent
    ]
    if not siblings:
        return None
    last = siblings[-1]
    text, key = texts[last.origin.file], spelling.spelled.rpartition(".")[2]
    start, end = last.span or (0, 0)
    line_start = text.rfind("\n", 0, start) + 1
    indent = re.match(r"[ \t]*", text[line_start:])
    pad = indent[0] if indent else ""
    if spelling.form == "json":
        inline = '"' not in text[line_start:start].split(":")[0] or text[line_start:start].count('"') != 2
        joint = ", " if inline else f",{_newline(text)}{pad}"
        return _insertion(last, end, f"{joint}{json.dumps(key)}: {json.dumps(value)}")
    if _in_braces(text[:start]):
        return _insertion(last, end, f", {key}: {_plain(value)}")
    line_end = text.find("\n", max(end - 1, start) if text[end - 1 : end] == "\n" else end)
    line_end = len(text) if line_end < 0 else line_end
    cut = line_end - 1 if text[line_end - 1 : line_end] == "\r" else line_end
    return _insertion(last, cut, f"{_newline(text)}{pad}{key}: {_plain(value)}", below=1)


def _can_be_written(value: Any, form: str) -> bool:
    """Whether a text is a value and no more, where nothing puts it into quotes."""
    if not isinstance(value, str) or form == "json":
        return True
    return value.isprintable() if form == "python" else is_word(value)


def _edit(own: Setting, *replacements: Replacement) -> Edit:
    return Edit(own.origin.file, own.origin.line or 1, replacements)


def _insertion(beside: Setting, place: int, new: str, below: int = 0) -> Edit:
    return Edit(beside.origin.file, (beside.origin.line or 1) + below, (Replacement(place, place, new),))


def _newline(text: str) -> str:
    """The line end of a file, by its first line."""
    return "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"


def _in_braces(before: str) -> bool:
    """Whether a place in YAML is inside a flow mapping."""
    bare = re.sub(r"#[^\n]*|'[^']*'|\"[^\"]*\"", "", before)
    return bare.count("{") > bare.count("}")


_OTHER_MACHINES = ("docker", "podman", "nvidia-docker", "ssh", "kubectl")
"""What runs a quoted command without the variables of this shell."""


def _add_export(spelling: Spelling, value: Any, texts: Mapping[str, str], settings: Sequence[Setting]) -> Edit | None:
    """`export NAME=value` before the command that starts the run."""
    key, _, inner = spelling.spelled.partition("=")
    content = f"{inner}:{value}" if inner else value
    there = [s for s in settings if s.spelled == key and s.form == "env" and s.span and s.origin.file in texts]
    if inner and there:  # the variable is set: the option is appended to its value
        end = (there[-1].span or (0, 0))[1]
        end -= texts[there[-1].origin.file][end - 1 : end] in "'\""
        return _insertion(there[-1], end, f",{content}")
    own = [s for s in settings if s.form in ("flag", "hydra", "env") and s.span and s.origin.file in texts]
    if not own:
        return None
    name = own[0].origin.file
    text = texts[name]
    if "ray job submit" in text:
        return None  # the workers belong to a cluster that another shell started
    tokens = list(read_tokens(text))
    start = (own[0].span or (0, 0))[0]
    place = max(
        (t for t in tokens if t.first and not t.nested and t.start <= start), key=lambda t: t.start, default=None
    )
    quoted = any(t.nested and t.start <= start < t.end for t in tokens)
    if place is None or (quoted and place.text.rpartition("/")[2] in _OTHER_MACHINES):
        return None
    line_start = text.rfind("\n", 0, place.start) + 1
    return Edit(name, place.line, (Replacement(line_start, line_start, f"export {key}={content}{_newline(text)}"),))


def _plain(value: Any, python: bool = False) -> str:
    if isinstance(value, bool):
        return ("True" if value else "False") if python else ("true" if value else "false")
    return "null" if value is None else str(value)


def _shell_value(value: Any, old: str, text: str, start: int) -> str:
    """The new word with the old word's quotes and way of writing booleans."""
    escaped = '\\"' if old.endswith('\\"') else ""  # quotes in a quoted command
    quote = (
        escaped
        if escaped and old.startswith(escaped)
        else old[0]
        if old[:1] in ("'", '"') and old[-1:] == old[0]
        else ""
    )
    inner = old.strip("'\"\\")
    if isinstance(value, bool):
        shown = {"True": "False", "False": "True", "true": "false", "false": "true"}.get(inner)
        word = shown if shown is not None else _plain(value, python=True)
        word = (
            ("True" if value else "False")
            if inner in ("True", "False")
            else _plain(value)
            if inner in ("true", "false")
            else word
        )
    else:
        word = _plain(value)
    if (quote == "" and old.count("'") % 2 == 1) or old.count('"') % 2 == 1:
        tail = escaped or (old[-1] if old[-1:] in "'\"" else "")  # the quote was opened before the key: 'a.b=1'
        return word + tail
    return f"{quote}{word}{quote}"


def _document_value(value: Any, old: str, form: str) -> str:
    if form == "json":
        return json.dumps(value)
    quote = old[0] if old[:1] in ("'", '"') else ""
    if isinstance(value, bool) and old in ("True", "False"):
        return "True" if value else "False"
    return f"{quote}{_plain(value)}{quote}"
