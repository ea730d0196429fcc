"""Configuration of any form -> canonical settings with their file, their line.

Shell scripts, Hydra overrides, YAML, DeepSpeed JSON, environment files. What is in no table is kept
under its own name, so that rules and people can still ask for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import Any

import yaml

from rlhfdoctor.i18n.message import NOTHING, quoted, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.shell import Token, read_tokens
from rlhfdoctor.settings.written import Written, interpret, number
from rlhfdoctor.types import Gap, Origin, Setting, Value

_OVERRIDE_KEY = folders.joined(
    r"[A-Za-z_][\w/@-]*(?:\.[\w@-]+)+", folders.every(lambda spec: spec.overrides_without_dot)
)
OVERRIDE = re.compile(rf"^(?P<plus>[+~]{{0,2}})(?P<key>{_OVERRIDE_KEY})=(?P<value>.*)$", re.S)
"""A Hydra override; of those without a dot, which look like variables of the shell, the ones that a framework
declares."""
_ENV = re.compile(r"^(?P<key>[A-Z][A-Z0-9_]{2,}|RAY_\w+)=(?P<value>.*)$", re.S)
_REST = re.compile(r"\$(?:[@*]|\{[@*]\}|\{\w+\[[@*]\]\})")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_STARTS_IN_CONTAINER = re.compile(r"^(?:.*/)?(?:bash|sh|python[\d.]*|torchrun|deepspeed|accelerate|ray|sleep)$")
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_MOST_SETTINGS = 20_000
_MOST_NODES = 200_000
_MOST_VISITS = 1_000_000
"""Of mappings: aliases may name one many times."""
_DEEPEST = 200
_NESTS = re.compile(r"[\[{]|[-?:] ")
_INDENTED = re.compile(rf"^ {{{_DEEPEST}}}", re.M)
_ANCHOR_OR_TAG = re.compile(r"(?:[&!]\S*[ \t]+)+")
_FLAG = re.compile(r"^(?P<key>--?[A-Za-z][\w.-]*)(?:=(?P<value>.*))?$", re.S)
_SBATCH = re.compile(r"^#SBATCH +(?P<key>--mem)(?:=| +)(?P<value>\S+)", re.M)
_PYTHON_ARGUMENT = re.compile(r"\b(?P<key>object_store_memory|_memory)\s*=\s*(?P<value>[^,()\n]+(?:\([^()\n]*\))?)")
CONFIG_LIMIT_BYTES = 2 * 1024**2
"""No configuration that people write is longer."""
CONFIG_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".json", ".env", ".py", ".cfg", ".toml")


def is_configuration(name: str) -> bool:
    """Whether a file is configuration by its name, and so no log."""
    return _plain_name(name).endswith(CONFIG_ENDINGS)


def is_source(name: str) -> bool:
    """Whether a file is a program or a configuration that no program writes to; JSON may be a log."""
    return is_configuration(name) and not _plain_name(name).endswith(".json")


def _plain_name(name: str) -> str:
    """The file's name in lower case without the ending of its compression."""
    lower = name.rsplit("!", 1)[-1].lower()
    for ending in _COMPRESSED:
        lower = lower.removesuffix(ending)
    return lower


def read_configuration(name: str, text: str, prefer: str | None = None) -> tuple[list[Setting], list[Gap]]:
    """Settings of one configuration file, by the table of a framework that is known already."""
    found, gaps = parse_configuration(name, text)
    return interpret(found, prefer), gaps


def parse_configuration(name: str, text: str) -> tuple[list[Written], list[Gap]]:
    """Settings of one configuration file as they are written.

    Args:
        name: path, which decides how it is read.
        text: the whole file.
    """
    if text.startswith("\ufeff"):  # spans count the mark, parsers do not
        found, gaps = parse_configuration(name, text[1:])
        return [replace(s, span=(s.span[0] + 1, s.span[1] + 1)) if s.span else s for s in found], gaps
    lower = _plain_name(name)
    try:
        if lower.endswith((".yaml", ".yml", ".json")):
            return list(parse_document(name, text)), []
        if lower.endswith(".py"):
            return list(_read_python(name, text)), []
        if lower.endswith((".toml", ".cfg")):
            return [], []
        found = list(islice(parse_shell(name, text), _MOST_SETTINGS + 1))
        if len(found) > _MOST_SETTINGS:
            raise RecursionError
        return found, []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = say(", line {line}", line=mark.line + 1) if mark else NOTHING
        return [], [
            Gap(
                what=quoted(name),
                why=say(
                    "no valid YAML or JSON{where}: {problem}",
                    where=where,
                    problem=str(getattr(error, "problem", error)),
                ),
            )
        ]
    except RecursionError:
        return [], [
            Gap(
                what=quoted(name), why=say("nested too deeply, or more than 20,000 settings; not read as configuration")
            )
        ]


# --- shell -------------------------------------------------------------------------------------


def parse_shell(name: str, text: str) -> Iterator[Written]:
    """Settings of a launch script: flags, Hydra overrides, environment, docker and slurm limits."""
    line, counted = 1, 0
    for match in _SBATCH.finditer(text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        yield _written(match["key"], match["value"], name, line, "sbatch", match.span("value"), "container")
    in_docker = printed = False
    for token, upcoming in pairwise(chain(read_tokens(text), (None,))):
        if token is None:
            return
        if token.first:
            in_docker = token.text in ("docker", "podman", "nvidia-docker")
        elif in_docker and _STARTS_IN_CONTAINER.search(token.text):
            in_docker = False
        following = upcoming if upcoming is not None and not upcoming.first else None
        if following is not None and (token.group not in (0, following.group) or _REST.fullmatch(following.text)):
            following = None  # it is in other quotes, or expands to any number of words
        printed = token.text in ("echo", "printf") if token.first else printed
        if token.group >= 0 and not printed:
            yield from _read_word(name, token, following, in_docker)


def _read_word(name: str, token: Token, following: Token | None, in_docker: bool) -> Iterator[Written]:
    override = OVERRIDE.match(token.text)
    if override:
        value_at = _value_at(token)
        yield _written(
            override["key"],
            override["value"],
            name,
            token.line,
            "hydra",
            (value_at, token.end),
            plus=override["plus"],
        )
        return
    env = _ENV.match(token.text)
    if env:
        value_at = _value_at(token)
        yield from _environment(env["key"], env["value"], name, token.line, (value_at, token.end))
        return
    flag = _FLAG.match(token.text)
    if flag is None:
        return
    owner = "container" if in_docker and flag["key"] in ("-m", "--memory", "--memory-swap", "--shm-size") else None
    if flag["key"].startswith("-") and not flag["key"].startswith("--") and owner is None:
        return
    if flag["value"] is not None:
        equals = token.raw.find("=")
        yield _written(
            flag["key"], flag["value"], name, token.line, "flag", (token.start + equals + 1, token.end), owner
        )
    elif (following is not None and not following.raw.startswith("-") and not OVERRIDE.match(following.text)) or (
        following is not None and re.match(r"^-\d", following.raw)
    ):
        yield _written(flag["key"], following.text, name, token.line, "flag", (following.start, following.end), owner)
    else:
        yield _written(flag["key"], True, name, token.line, "flag", (token.start, token.end), owner)


def _value_at(token: Token) -> int:
    """Where the value of `key=value` begins; the end of the word if a variable hides the sign."""
    equals = token.raw.find("=")
    return token.end if equals < 0 else token.start + equals + 1


def _environment(key: str, value: str, name: str, line: int, span: tuple[int, int] | None) -> Iterator[Written]:
    yield _written(key, value, name, line, "env", span)
    if key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        for part in value.split(","):
            inner, _, content = part.partition(":")
            if content:
                yield _written(f"{key}={inner}", content, name, line, "env", span)


def _read_python(name: str, text: str) -> Iterator[Written]:
    line, counted = 1, 0
    for match in _PYTHON_ARGUMENT.finditer(text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        value = match["value"].strip()
        if match["key"] == "object_store_memory":
            origin = Origin(file=name, line=line)
            yield Written(
                match["key"],
                number(value),
                origin,
                "python",
                match.span("value"),
                "ray",
                name="ray.object_store_memory",
            )


# --- documents ---------------------------------------------------------------------------------


def parse_document(name: str, text: str) -> Iterator[Written]:
    """Settings of a YAML or JSON file: every scalar under its dotted path.

    Raises:
        yaml.YAMLError: the text is neither.
        RecursionError: it is nested too deeply, or its aliases multiply beyond reason.
    """
    form = "json" if _plain_name(name).endswith(".json") else "yaml"
    plain = _SURROGATES.sub("\ufffd", text.replace("\t", " ") if form == "json" else text)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if _is_deep(plain, loader):
        raise RecursionError
    count = 0
    for root in yaml.compose_all(plain, Loader=loader):
        if not isinstance(root, yaml.MappingNode):
            continue
        for setting in _walk(root, (), (name, form, plain), set(), [], Counter()):
            count += 1
            if count > _MOST_SETTINGS:
                raise RecursionError
            yield setting


def _is_deep(text: str, loader: Any) -> bool:
    """Whether values are too many, or too deep in each other, for a configuration; composing recurses without a guard.

    Parsing does not (libyaml's parser keeps its states in a list). It is spared where a text has too few of what nests.
    """
    if len(_NESTS.findall(text)) <= _DEEPEST and not _INDENTED.search(text):
        return False
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=loader)):
        if count > _MOST_NODES:
            return True
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            return True
    return False


def _walk(
    node: yaml.MappingNode,
    path: tuple[str, ...],
    file: tuple[str, str, str],
    seen: set[int],
    above: list[int],
    visits: Counter[str],
) -> Iterator[Written]:
    """Scalars below a mapping. What an alias shows a second time has no place of its own to edit."""
    name, form, text = file
    visits["mappings"] += 1
    if visits["mappings"] > _MOST_VISITS:
        raise RecursionError
    if id(node) in above or len(path) > 40:
        return
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        inner = (*path, key.value)
        if isinstance(value, yaml.MappingNode):
            yield from _walk(value, inner, file, seen, [*above, id(node)], visits)
        elif isinstance(value, yaml.ScalarNode):
            start, end = value.start_mark.index, value.end_mark.index
            mark = _ANCHOR_OR_TAG.match(text, start, end)
            span = None if id(value) in seen else (mark.end() if mark else start, end)
            seen.add(id(value))
            quoted = value.style in ("'", '"')
            yield _written(".".join(inner), value.value, name, value.start_mark.line + 1, form, span, quoted=quoted)
        elif isinstance(value, yaml.SequenceNode):
            for item in value.value:
                if isinstance(item, yaml.MappingNode):
                    yield from _walk(item, inner, file, seen, [*above, id(node)], visits)


def _written(
    spelled: str,
    value: Value,
    file: str,
    line: int | None,
    form: str,
    span: tuple[int, int] | None,
    owner: str | None = None,
    plus: str = "",
    quoted: bool = False,
) -> Written:
    return Written(spelled, value, Origin(file=file, line=line), form, span, owner, plus, quoted)
