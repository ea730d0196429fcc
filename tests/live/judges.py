"""A judge that a run can end, for test_ray_fleet."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rlhfdoctor.fleet import FleetRow


def make_judge(_reading: dict[str, Any]) -> Callable[..., FleetRow]:
    """Ends its process at a run called fatal."""

    def judge(path: str, _say: Callable[[int], None]) -> FleetRow:
        if path.endswith("fatal"):
            os.kill(os.getpid(), 9)
        return FleetRow(path=path, verdict="healthy")

    return judge
