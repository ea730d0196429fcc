"""Run as a child: validate a DeepSpeed configuration with the classes of one unpacked release.

    python -I deepspeed_child.py UNPACKED_RELEASE < ds_config.json
    {"error": "1 validation error for DeepSpeedZeroConfig ..."}

`import deepspeed` needs torch, takes 4 s and fails for old releases on a new torch (0.13.5 on 2.13:
`cannot import name 'log'`). The configuration classes need none of that, only pydantic. So the
package and its subpackages are entered without their `__init__.py`, and three names are stood in
for: `torch.dtype` (a JSON encoder's key), `deepspeed.utils.logger`, the loss scaler's key names.
"""

import importlib
import json
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGES = (
    "deepspeed",
    "deepspeed.runtime",
    "deepspeed.runtime.zero",
    "deepspeed.runtime.zenflow",
)


class _Names(ModuleType):
    """A module in which every name is the string of itself."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def stand_in(root: Path) -> None:
    """Register bare packages of the release below `root`, and what its config modules import."""
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    utils, torch = ModuleType("deepspeed.utils"), ModuleType("torch")
    vars(utils)["logger"] = logging.getLogger("deepspeed")
    vars(torch)["dtype"] = type("dtype", (), {})
    loss_scaler = _Names("deepspeed.runtime.fp16.loss_scaler")
    fp16 = ModuleType("deepspeed.runtime.fp16")
    sys.modules.update({module.__name__: module for module in (utils, torch, fp16, loss_scaler)})


def validate(root: Path, config: dict[str, Any]) -> str | None:
    """Return the release's complaint about the blocks that it validates with classes, or None."""
    zero = importlib.import_module("deepspeed.runtime.zero.config")
    readers = [zero.get_zero_config]
    if (root / "deepspeed" / "runtime" / "precision_config.py").exists():  # from 0.17.1 on
        precision = importlib.import_module("deepspeed.runtime.precision_config")
        readers += [precision.get_bfloat16_config, precision.get_float16_config]
    try:
        for read in readers:
            read(config)
    except (AssertionError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        return f"{error}" or type(error).__name__
    return None


if __name__ == "__main__":
    release = Path(sys.argv[1])
    stand_in(release)
    print(json.dumps({"error": validate(release, json.load(sys.stdin))}))
