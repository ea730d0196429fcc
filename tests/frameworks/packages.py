"""Ask the real releases whether they take a configuration: the judge of every proposed patch.

| release   | what of it decides                                  | beyond its reach              |
|-----------|-----------------------------------------------------|-------------------------------|
| verl      | Hydra composes its shipped `ppo_trainer.yaml`       | types of values, `+` keys     |
| openrlhf  | argparse, built from the script's own statements;   | the asserts after parsing     |
|           | before 0.3.6 from what these statements said        |                               |
| deepspeed | its classes of zero_optimization, and (from 0.17.1) | checks across blocks, keys of |
|           | bf16 and fp16; its names of top-level keys          | other blocks                  |
| trl       | the dataclass fields that TRL itself defines        | transformers' fields, values  |

What the registry has of them, and lacks (looked up in November 2026):

| package   | there                                               | lacks                         |
|-----------|-----------------------------------------------------|-------------------------------|
| verl      | wheels: 0.1, 0.2, 0.2.0.post1-2, 0.3.0.post0-1,     | 0.3.0 itself                  |
|           | 0.4.0-1, 0.5.0, 0.6.0-1, 0.7.0-1, 0.8.0, 0.9.0-1    |                               |
| openrlhf  | wheels: 0.3.6.post1 .. 0.11.2 (cp310 - cp312 only)  | 0.0 .. 0.2, 0.3.0 .. 0.3.6,   |
|           |                                                     | 0.4.0 (only .post2-3); sdists |
| deepspeed | sdists: 0.3.1 .. 0.19.8                             | wheels                        |
| trl       | wheels: 0.0.1 .. 1.16.0                             | nothing that was asked for    |
| EasyR1    | nothing; its tags are read by `make schemas`        | all: the table is checked     |
|           |                                                     | against names.json            |

Nothing of torch, ray or vLLM is imported or downloaded. `Unavailable` says why a release cannot be
asked; tests turn it into a skip.
"""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from .openrlhf_parser import parse, read_parser, rebuild
from .registry import Unavailable, fetch

__all__ = [
    "Unavailable",
    "deepspeed_accepts",
    "fetch",
    "openrlhf_accepts",
    "trl_fields",
    "verl_accepts",
]

EARLY_FILE = Path(__file__).with_name("openrlhf_early.json")
"""Release -> flags of examples/train_ppo_ray.py, of releases that were tags only; `make schemas` reads them anew."""
_DEEPSPEED_CHILD = Path(__file__).with_name("deepspeed_child.py")


def verl_accepts(version: str, overrides: Sequence[str]) -> str | None:
    """Compose `ppo_trainer` of this verl with the overrides: None, or Hydra's error text.

    A key with a leading `+` always composes; verl 0.6 and later may still refuse it in a dataclass.

    Raises:
        Unavailable: no such release, or no hydra-core here.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
    except ImportError as error:
        raise Unavailable(f"hydra-core is not installed: {error}") from error
    folder = fetch("verl", version) / "verl" / "trainer" / "config"
    try:
        with initialize_config_dir(str(folder), version_base=None):
            config = compose("ppo_trainer", overrides=list(overrides))
        OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        return f"{error}" or type(error).__name__
    return None


def openrlhf_accepts(version: str, script: str, argv: Sequence[str]) -> str | None:
    """Parse `argv` with the parser of `openrlhf.cli.<script>`: None, or argparse's error text.

    argparse takes a flag's unique beginning for the flag (`--ds.adam` for `--ds.adam_offload`), so
    this does too.
    """
    early = json.loads(EARLY_FILE.read_text(encoding="utf-8")).get(version)
    if early is not None:
        return parse(rebuild(early, f"examples/{script}.py"), argv)
    path = fetch("openrlhf", version) / "openrlhf" / "cli" / f"{script}.py"
    if not path.exists():
        return f"openrlhf {version} has no script openrlhf.cli.{script}"
    return parse(read_parser(path), argv)


def deepspeed_accepts(version: str, config: dict[str, object]) -> str | None:
    """Validate a DeepSpeed configuration with this release: None, or an error text.

    DeepSpeed itself ignores an unknown top-level key in silence; here it is an error.

    Raises:
        Unavailable: no such release, or no pydantic here.
    """
    root = fetch("deepspeed", version)
    stray = sorted(set(config) - _deepspeed_names(root))
    if stray:
        return f"deepspeed {version} reads no top-level key {', '.join(stray)}"
    return _ask_deepspeed(root, json.dumps(config, sort_keys=True))


def trl_fields(version: str, config_class: str = "GRPOConfig") -> set[str]:
    """Name the fields of a TRL configuration class, with those of its bases inside TRL.

    Fields of transformers' TrainingArguments are missing unless TRL redefines them.
    """
    return trl_fields_in(fetch("trl", version), config_class)


def trl_fields_in(root: Path, config_class: str = "GRPOConfig") -> set[str]:
    """As `trl_fields`, of the tree of a release."""
    classes = _classes_in(root / "trl" / "trainer")
    if config_class not in classes:
        return set()
    return set(_fields(config_class, classes))


@functools.cache
def _ask_deepspeed(root: Path, config_json: str) -> str | None:
    """Run the release's classes in a process of their own: each release is a module `deepspeed`."""
    command = [sys.executable, "-I", str(_DEEPSPEED_CHILD), str(root)]
    child = subprocess.run(command, input=config_json, check=False, capture_output=True, text=True, timeout=60)
    if "No module named 'pydantic'" in child.stderr:
        raise Unavailable("pydantic is not installed")
    if child.returncode != 0:
        raise RuntimeError(f"{root.name}: the validator itself failed\n{child.stderr}")
    return cast("str | None", json.loads(child.stdout)["error"])


@functools.cache
def _deepspeed_names(root: Path) -> frozenset[str]:
    """Collect the names that the release's config modules can look up at the top level.

    That is every string in them, less the keys that 0.19.8 refuses as removed.
    """
    package = root / "deepspeed"
    names: set[str] = set()
    removed: set[str] = set()
    for path in (*package.glob("**/constants.py"), *package.glob("**/config.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names.update(_strings(tree))
        removed.update(_removed_keys(tree))
    return frozenset(names - removed)


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _removed_keys(tree: ast.Module) -> Iterator[str]:
    """Read the keys of `_REMOVED_TOP_LEVEL_CONFIG_KEYS = {"amp": "... has been removed", ...}`."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="_REMOVED_TOP_LEVEL_CONFIG_KEYS")], value=ast.Dict(keys=keys)):
                yield from (ast.literal_eval(key) for key in keys if key is not None)


def _classes_in(folder: Path) -> dict[str, ast.ClassDef]:
    """Read the top-level classes of the `*_config.py` files in `folder`."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*_config.py")]
    statements = [statement for tree in trees for statement in tree.body]
    return {found.name: found for found in statements if isinstance(found, ast.ClassDef)}


def _fields(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    if name not in classes:  # a base from another package, such as TrainingArguments
        return
    for base in classes[name].bases:
        yield from _fields(ast.unparse(base), classes)
    for statement in classes[name].body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
