"""Configuration that a program prints at start -> settings as they are written.

A dump is found by its first line (`logs/config.py`, the frameworks' `config.dump`), which determines its form:

    {'actor_rollout_ref': {'actor': ...          verl, EasyR1: pprint of an OmegaConf
    trainer.policy: ...                          SkyRL: YAML
    Namespace(zero_stage=3, ...)                 argparse; sglang's ServerArgs, vLLM's EngineArgs
    GRPOConfig(\\n_n_gpu=1,\\n...                  transformers' TrainingArguments.__str__, so every config of TRL
    non-default args: {...}, with config: k=v    vLLM
    json = {...}, DeepSpeedEngine configuration  DeepSpeed's runtime/config.py
    ------ arguments ------                      Megatron's training/arguments.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlhfdoctor.settings.printed import Printed
from rlhfdoctor.settings.written import Written, scalar
from rlhfdoctor.types import Origin

_YAML_ENTRY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z_]\w*):(?: +(?P<value>\S.*?))? *$")
_YAML_START = re.compile(r"(?:^|[ -])(?P<key>[A-Za-z_]\w*): *$")
_YAML_ITEM = re.compile(r" *- ")
_RAY = re.compile(r"\s*\((?:[^()]{0,80}\b(?:pid|ip|rank)=[^()]{1,80}|raylet|autoscaler|gcs_server)\) ?")
_RANK = re.compile(r"\s*\[(?:default|rank) ?\d{1,6}\]:? ?")
_QUOTE = re.compile(r"(?:\s{0,8}[>│┃] ?)+")
_FULL_WIDTH = str.maketrans("，：；（）｛｝［］＝－“”‘’　。", ",:;(){}[]=-\"\"'' .")
"""As Chinese input methods and forums write the signs."""
_DOTTED = re.compile(r"(?:^|[\s\]])(?P<key>[A-Za-z_]\w{0,80}) \.{2,60} ?(?P<value>.*)$")
_CUT = re.compile(r"\s{0,200}(?:\[?\.\.\.\]?|\[?…\]?)\s*$")
"""A line that stands for those that a person left out; it has no writer."""
_NARROWEST = 40
_MOST_FOREIGN = 40


@dataclass(frozen=True, slots=True)
class _Form:
    """How the dump of one program is read."""

    anchor: re.Pattern[str]
    spell: Callable[[tuple[str, ...]], str]
    """Path of keys -> spelling."""
    owner: str | None = None
    """Table of the library that prints it."""
    bare: bool = False
    dotted: bool = False
    tails: bool = False
    """Whether the last key of a path counts if what is above it was cut out."""


def _flag(path: tuple[str, ...]) -> str:
    return "--" + ".".join(path)


def _engine_flag(path: tuple[str, ...]) -> str:
    """vLLM's resolved configuration calls the model's length `max_seq_len`."""
    return "--max-model-len" if path == ("max_seq_len",) else _flag(path)


def _router_flag(path: tuple[str, ...]) -> str:
    """sglang's arguments as slime takes them; verl sets them by names of its own."""
    return "--sglang-" + ".".join(path).replace("_", "-")


def _field(path: tuple[str, ...]) -> str:
    """Of a configuration's class; DeepSpeed's JSON within it is spelled as in a file of its own."""
    return ".".join(path[1:] if path[0] in ("deepspeed", "hf_deepspeed_config") and len(path) > 1 else path)


def _dotted_path(path: tuple[str, ...]) -> str:
    """DeepSpeed's attributes are named for, but not as, the keys of its JSON."""
    first = {"zero_config": "zero_optimization", "bfloat16_enabled": "bf16.enabled", "fp16_enabled": "fp16.enabled"}
    return ".".join((first.get(path[0], path[0]), *path[1:]))


_FORMS = (
    _Form(re.compile(r"API server (?:version \S{1,40} )?args: (?=Namespace\()"), _engine_flag, "vllm"),
    _Form(re.compile(r"non-default args: (?=\{)"), _engine_flag, "vllm"),
    _Form(re.compile(r"LLM engine (?:\(v[^)]{1,60}\) )?with config: "), _engine_flag, "vllm", bare=True),
    _Form(re.compile(r"(?=\b(?:Async)?EngineArgs\()"), _engine_flag, "vllm"),
    _Form(re.compile(r"(?=\bServerArgs\()"), _router_flag),
    _Form(re.compile(r"(?=\bNamespace\()"), _flag),
    _Form(re.compile(r"(?=\b[A-Z]\w{0,40}(?:Arguments|Config)\()"), _field),
    _Form(re.compile(r"\bjson = (?=\{)"), ".".join, "deepspeed"),
    _Form(re.compile(r"DeepSpeedEngine configuration:?"), _dotted_path, "deepspeed", dotted=True),
    _Form(re.compile(r"-{6,80} arguments -{6,80}"), _flag, dotted=True),
    _Form(re.compile(r"(?=\{['\"])"), ".".join, tails=True),
)


@dataclass(slots=True)
class Dump:
    """One printed configuration; `cut` holds once its settings were read."""

    lines: Sequence[str]
    """Its first line, and those behind it in the log."""
    origin: Origin
    cut: bool = False
    """Whether a part of it is known to be missing."""

    def settings(self) -> Iterator[Written]:
        """The settings in order, each with its line."""
        head = _clean(self.lines[0]) if self.lines else ""
        for form in _FORMS:
            if (match := form.anchor.search(head)) is not None:
                yield from self._of_form(form, match.end())
                return
        if start := _YAML_START.search(head):
            found = _yaml_entries(start["key"], [_bare(line) for line in self.lines])
            yield from (self._written(".".join(path), value, place) for path, value, place in found)

    def _of_form(self, form: _Form, start: int) -> Iterator[Written]:
        kept = own_lines(self.lines)
        body: Sequence[tuple[int, str]]
        body = [(0, _clean(self.lines[0])[start:]), *((place, _clean(line)) for place, line in kept[1:])]
        if form.dotted:
            yield from self._dotted(form, body)
            return
        body = _unwrapped(body)
        printed = Printed([text for _, text in body], bare=form.bare)
        for entry in printed.entries():
            tail = entry.path[-1] if entry.after_cut and form.tails else ""
            yield self._written(form.spell(entry.path), entry.value, body[entry.place][0], form.owner, tail)
        self.cut = printed.cut or not printed.complete

    def _dotted(self, form: _Form, body: Iterable[tuple[int, str]]) -> Iterator[Written]:
        """A table of names, dots and values; a value of several words is one of `key=value`."""
        foreign, self.cut = 0, form.owner is None
        for place, line in body:
            if "end of arguments" in line:
                self.cut = False
                return
            found = _DOTTED.search(line)
            foreign = 0 if found else foreign + 1
            if foreign > _MOST_FOREIGN or re.search(r"\bjson = \{", line):
                return
            if found is None:
                continue
            value = found["value"].strip()
            if re.match(r"\w{1,100}=\S", value):
                for entry in Printed([f"{value},"], bare=True).entries():
                    yield self._written(form.spell((found["key"], *entry.path)), entry.value, place, form.owner)
            else:
                yield self._written(form.spell((found["key"],)), value, place, form.owner)

    def _written(self, spelled: str, value: str, place: int, owner: str | None = None, tail: str = "") -> Written:
        line = None if self.origin.line is None else self.origin.line + place
        origin = Origin(file=self.origin.file, line=line)
        return Written(spelled, scalar(value), origin, "dump", owner=owner, tail=tail)


def parse_dump(lines: Sequence[str], origin: Origin) -> Iterator[Written]:
    """Settings of a printed configuration; its form is that of its first line."""
    yield from Dump(lines, origin).settings()


def speaker(line: str) -> str:
    """Ray's or the launcher's mark of who wrote a line; empty without one."""
    plain = _QUOTE.sub("", line, count=1) if _QUOTE.match(line) else line
    found = _RAY.match(plain) or _RANK.match(plain)
    return found[0].strip() if found else ""


def own_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """(place, line) of the lines by the writer of the first, without what Ray, a launcher or a reply put before them.

    >>> own_lines(["(A pid=1) {'a': 1,", "(B pid=2) step 3", "(A pid=1)  'b': 2}"])
    [(0, "{'a': 1,"), (2, " 'b': 2}")]
    """
    if not lines:
        return []
    first = speaker(lines[0])
    alone = first and not any(speaker(line) for line in lines[1:4])  # pasted with the prefix of the first line only
    wanted = [(i, line) for i, line in enumerate(lines) if alone or speaker(line) == first or _CUT.match(line)]
    return [(place, _bare(line)) for place, line in wanted]


def _bare(line: str) -> str:
    """A line without marks of quotation and of its writer."""
    for prefix in (_QUOTE, _RAY, _RANK):
        found = prefix.match(line)
        line = line[found.end() :] if found else line
    return line


def _clean(line: str) -> str:
    return _bare(line).translate(_FULL_WIDTH)


def _unwrapped(body: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """The first line with those that a terminal's width cut off it: all but the last are of one length.

    >>> _unwrapped([(0, "Namespace(" + "a" * 40), (1, "b" * 50), (2, "c)"), (3, "d")])[1]
    (3, 'd')
    """
    width = len(body[0][1])
    if width < _NARROWEST or len(body) < 3 or len(body[1][1]) != width:
        return body
    end = next((i for i, (_, line) in enumerate(body) if len(line) != width), len(body) - 1)
    return [(0, "".join(line for _, line in body[: end + 1])), *body[end + 1 :]]


def _yaml_entries(first: str, lines: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """(path, value, place) of YAML whose first key ends a log line; it ends at the first line that is not YAML."""
    stack = [(0, first)]
    for place, line in enumerate(lines[1:], 1):
        match = _YAML_ENTRY.match(line)
        if match is None:
            if _YAML_ITEM.match(line):
                continue
            return
        depth = len(match["indent"])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if match["value"] is None:
            stack.append((depth, match["key"]))
        else:
            yield (*(key for _, key in stack), match["key"]), match["value"].strip("'\""), place
