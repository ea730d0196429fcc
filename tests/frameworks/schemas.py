"""The names that each release takes, read from the releases themselves: `make schemas` (python -m tests.frameworks.schemas).

Writes names.json (so that the settings tables can be checked without a network), openrlhf_early.json (the parsers of releases that were
only tags) and MATRIX.md (how many patches of which rules were put before which release). A release that cannot be had keeps what is known of it. With a whole clone at hand, every tag of it is read, too:

    RLHFDOCTOR_GIT_VERL=~/src/verl RLHFDOCTOR_GIT_TRL=~/src/trl make schemas
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlhfdoctor.settings.spell import parse_version
from tests.frameworks.openrlhf_parser import describe, read_parser
from tests.frameworks.packages import EARLY_FILE, trl_fields_in
from tests.frameworks.registry import Unavailable, fetch, fetch_tag, tagged_trees

FILE = Path(__file__).with_name("names.json")
MATRIX = Path(__file__).with_name("MATRIX.md")
RELEASES = {
    "openrlhf": ("0.1.10", "0.2.5", "0.2.9", "0.5.3", "0.5.4", "0.9.7", "0.9.10", "0.10.2", "0.11.2"),
    "verl": ("0.2", "0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1"),
    "deepspeed": ("0.13.5", "0.16.9", "0.18.3", "0.19.4", "0.19.8"),
    "easyr1": ("0.3.0", "0.3.1", "0.3.2"),
    "trl": ("0.16.1", "0.19.1", "0.26.2", "1.0.0", "1.16.0"),
}
EARLY = ("0.1.10", "0.2.5", "0.2.9")
_ZERO = "zero_optimization"


OLDEST = {"openrlhf": "0.1.4", "verl": "0.1", "deepspeed": "0.9.0", "trl": "0.14.0", "easyr1": "0.3.0"}
"""Tags before these are of no use to anybody now, or of another program."""
FOLDERS = {
    "openrlhf": ("examples", "openrlhf/cli"),
    "verl": ("verl/trainer/config",),
    "deepspeed": ("deepspeed/runtime/zero",),
    "trl": ("trl/trainer",),
    "easyr1": ("verl",),
}
"""What of a tag is read."""


def names_of(framework: str, version: str) -> set[str]:
    """What a release takes.

    Raises:
        Unavailable: the release cannot be had here.
    """
    early = framework == "easyr1" or (framework == "openrlhf" and version in EARLY)
    return names_in(framework, (fetch_tag if early else fetch)(framework, version))


def names_in(framework: str, root: Path) -> set[str]:
    """Names in the tree of a release: flags of train_ppo_ray (other scripts' flags are no use to it), keys of ppo_trainer.yaml, fields of zero_optimization, of EasyR1's PPOConfig, of GRPOConfig."""
    if framework == "openrlhf":
        script = next(path for folder in FOLDERS["openrlhf"] if (path := root / folder / "train_ppo_ray.py").exists())
        return {word for word in read_parser(script)._option_string_actions if word.startswith("--")}
    if framework == "verl":
        return set(_flat(_verl_tree(root)))
    if framework == "deepspeed":
        return set(_zero_fields(root / "deepspeed" / "runtime" / "zero"))
    if framework == "easyr1":
        return set(_dataclass_fields("PPOConfig", _dataclasses(root / "verl")))
    return trl_fields_in(root)


def _dataclasses(folder: Path) -> dict[str, ast.ClassDef]:
    """The classes of all config.py below a folder; their names differ."""
    trees = [ast.parse(path.read_text()) for path in sorted(folder.rglob("config.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def _dataclass_fields(name: str, classes: Mapping[str, ast.ClassDef], before: str = "") -> Iterator[str]:
    """Fields with dots; one whose type is a class of the package has that class's fields below it."""
    for statement in classes[name].body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield f"{before}{statement.target.id}"
            inner = ast.unparse(statement.annotation)
            if inner in classes:
                yield from _dataclass_fields(inner, classes, f"{before}{statement.target.id}.")


def _verl_tree(root: Path) -> Mapping[str, Any]:
    try:
        from hydra import compose, initialize_config_dir
        from omegaconf import OmegaConf
    except ImportError as error:
        raise Unavailable(f"hydra-core is not installed: {error}") from error
    with initialize_config_dir(str(root / "verl" / "trainer" / "config"), version_base=None):
        return OmegaConf.to_container(compose("ppo_trainer"), resolve=False)  # type: ignore[return-value]


def _flat(tree: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")


def _zero_fields(folder: Path) -> Iterator[str]:
    """Fields and aliases of the pydantic classes of zero_optimization."""
    places = {
        "DeepSpeedZeroConfig": _ZERO,
        "DeepSpeedZeroOffloadOptimizerConfig": f"{_ZERO}.offload_optimizer",
        "DeepSpeedZeroOffloadParamConfig": f"{_ZERO}.offload_param",
    }
    for file in (folder / "config.py", folder / "offload_config.py"):
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, ast.ClassDef) or node.name not in places:
                continue
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield f"{places[node.name]}.{statement.target.id}"
                    for word in ast.walk(statement.value or ast.Constant(None)):
                        if (
                            isinstance(word, ast.keyword)
                            and word.arg == "alias"
                            and isinstance(word.value, ast.Constant)
                        ):
                            yield f"{places[node.name]}.{word.value.value}"


def load() -> dict[str, dict[str, set[str]]]:
    """Framework -> release -> names, as names.json has them."""
    raw = json.loads(FILE.read_text()) if FILE.exists() else {}
    return {
        framework: {
            release: {name for name, marks in part["names"].items() if marks[place] == "1"}
            for place, release in enumerate(part["releases"])
        }
        for framework, part in raw.items()
    }


def save(found: Mapping[str, Mapping[str, set[str]]]) -> None:
    """Writes names.json: a mark for each release behind each name."""
    raw = {}
    for framework, unsorted in found.items():
        releases = {
            release: unsorted[release]
            for release in sorted(unsorted, key=lambda r: (parse_version(r) is None, parse_version(r), r))
        }
        every = sorted(set().union(*releases.values()))
        raw[framework] = {
            "releases": list(releases),
            "names": {name: "".join("1" if name in names else "0" for names in releases.values()) for name in every},
        }
    FILE.write_text(json.dumps(raw, indent=0, sort_keys=True) + "\n")


def save_early() -> None:
    """Writes openrlhf_early.json; a tag that cannot be had keeps what is there."""
    known = json.loads(EARLY_FILE.read_text()) if EARLY_FILE.exists() else {}
    for version in EARLY:
        try:
            known[version] = describe(read_parser(fetch_tag("openrlhf", version) / "examples" / "train_ppo_ray.py"))
        except Unavailable as error:
            sys.stdout.write(f"openrlhf {version}: {error}\n")
    EARLY_FILE.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


def main() -> int:
    save_early()
    found = load()
    for framework, folders in FOLDERS.items():
        for release, tree in tagged_trees(framework, OLDEST[framework], folders):
            found.setdefault(framework, {})[release] = names_in(framework, tree)
    for framework, releases in RELEASES.items():
        for release in releases:
            try:
                found.setdefault(framework, {})[release] = names_of(framework, release)
                sys.stdout.write(f"{framework} {release}: {len(found[framework][release])} names\n")
            except Unavailable as error:
                sys.stdout.write(f"{framework} {release}: {error}\n")
    save(found)
    from tests.frameworks.test_patches import count_matrix

    with tempfile.TemporaryDirectory() as folder:
        MATRIX.write_text(count_matrix(Path(folder)))
    sys.stdout.write(MATRIX.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
