"""Paths as callers of the package give them: one, or several."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
"""One path, or several."""


def listed(paths: Paths) -> tuple[str, ...]:
    """Each of them as text.

    >>> listed("ray_logs"), listed(["ray_logs", "launch.sh"])
    (('ray_logs',), ('ray_logs', 'launch.sh'))
    """
    return tuple(os.fspath(path) for path in ((paths,) if isinstance(paths, (str, os.PathLike)) else paths))
