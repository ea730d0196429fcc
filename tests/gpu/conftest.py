"""Without torch and the trainer's packages (the small environment of `make check`) the steps are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if all(map(find_spec, ("torch", "omegaconf"))) else ["test_on_gpu.py", "trainings.py"]
