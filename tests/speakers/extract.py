"""Messages in source code: the string literals of what a program raises, logs or prints, with its places filled."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

ANCHOR = re.compile(
    r"out of (?:host |device |shared |GPU |CPU )?memory|\bOOM\b|oom[-_ ]?kill|\bkill(?:ed|ing)\b|SIG(?:KILL|TERM|BUS|SEGV|ABRT)"
    r"|tim(?:ed?|ing)[- ]?out|/dev/shm|shared[- ]memory|\bshm|no space|disk (?:is )?(?:full|quota)|over .{0,12}full|pinned|page-locked"
    r"|cudaHost|pin_memory|\bnan\b|not finite|non-finite|\binf/nan\b|loss scale|\babort|evict|memory limit|memory pressure"
    r"|(?:not enough|insufficient|no available|running low on|free) memory|(?:fail|unable|can ?not|can't|couldn't)[a-z ]{0,20} (?:to )?(?:m?alloc|pin|mmap|fork)"
    r"|allocation fail|too many open files|temporarily unavailable|ulimit|died|dead\b|unexpectedly|crashed|hung\b|stuck\b",
    re.IGNORECASE,
)
"""Words near which a message may tell of memory, kills, time-outs, shared memory, pinning, disks, limits or NaN."""
_SAYS = re.compile(
    r"^(?:print|warn|warning|error|exception|critical|fatal|info|debug|log|log_dist|logger|print_rank_0|rank_zero_warn|warning_once|log_debug"
    r"|see_memory_usage|fail|abort|log_single_rank|print_datetime|print_with_rank|echo|error_once|\w+(?:Error|Exception|Failed|Warning))$"
)
_EXCEPTION = re.compile(r"(?:Error|Exception|Failed|Interrupt|Timeout)$")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|P)?[A-Za-z]")
_BRACES = re.compile(r"\{[^{}]*\}")
_MACRO = re.compile(
    r"\b(?:WARN|INFO|ERROR|fatal|error|warning|info|debug2?|verbose|log_flag|slurm_error|print_slurm_msg|fprintf|printf|perror|Printf|Errorf|Eventf|Event|Infof?|Warningf?"
    r"|TORCH_(?:CHECK\w*|WARN\w*|INTERNAL_ASSERT)|C10_THROW_ERROR|C10_CUDA_CHECK|LOG|VLOG|RAY_(?:LOG|CHECK)\w*|Status::\w+|CAFFE_ENFORCE\w*|AT_ERROR|GLOO_(?:THROW\w*|ENFORCE\w*|ERROR|WARN|LOG)"
    r"|EnforceNotMet|\w*[eE]xception|runtime_error|makeDeviceDetailedError|NCCLCHECK|CUDACHECK|SYSCHECK\w*|EQCHECK\w*|THROW\w*)\s*\("
)
_LONGEST = 1600


def of_python(text: str) -> Iterator[str]:
    """Lines as a program in Python would print them; an exception has its class before it, as in a traceback."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _SAYS.match(name := _name(node.func)):
            for argument in node.args[:3]:
                if (said := _text(argument)) is not None:
                    said = f"{name}: {said}" if _EXCEPTION.search(name) else said
                    yield from _lines(said)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str | None:
    """A string expression with 7 for each of its values."""
    if isinstance(node, ast.Constant):
        return _PERCENT.sub("7", node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _text(node.left)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else (left or "7") + (right or "7")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        said = _text(node.func.value)
        return None if said is None else _BRACES.sub("7", said)
    return None


def of_c(text: str) -> Iterator[str]:
    """Lines as a program in C, C++ or Go would print them: the literals of one statement, 7 between them."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL) if len(text) < 3_000_000 else text
    for match in _MACRO.finditer(text):
        end = text.find(";", match.end())
        statement = text[match.end() : min(end if end > 0 else len(text), match.end() + _LONGEST)]
        said, last = "", None
        for literal in _LITERAL.finditer(statement):
            between = statement[last : literal.start()].strip() if last is not None else ""
            said += ("" if last is None or between in ("", "<<", ",", "+") else "7") + literal[1]
            last = literal.end()
        if said:
            said = re.sub(r"\" ?PRI\w+ ?\"", "", said)
            yield from _lines(
                _PERCENT.sub("7", said).replace("%7", "7").replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
            )


def of_strings(text: str) -> Iterator[str]:
    """The literals of a library, as `strings` lists them: pieces, since what is streamed between them is not there."""
    for line in text.split("\n"):
        if (
            " " in line
            and len(line) < 600
            and not re.match(r"_Z|[./]|\W{3}", line)
            and not re.search(r"[{};]\s*$|::\w+[<(]|\) const|0x", line)
        ):
            yield _PERCENT.sub("7", line.strip())


def _lines(said: str) -> Iterator[str]:
    """The lines of a message that have an anchor, and enough of their own words."""
    for line in said.split("\n"):
        line = " ".join(line.split())
        if len(line) >= 12 and len(re.findall(r"[A-Za-z]{3,}", line)) >= 2:
            yield line[:500]
