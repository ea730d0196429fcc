"""Releases are asked by tests marked `network` only; skipped, with the reason, where a release cannot be had on this machine."""

from collections.abc import Generator
from pathlib import Path

import pytest

from . import registry
from .registry import Unavailable


@pytest.fixture(autouse=True)
def offline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without the mark that asks for a release fails, so that `-m "not network"` is true."""

    def refuse() -> Path:
        raise AssertionError("this test reads a real release: mark it with pytest.mark.network")

    if request.node.get_closest_marker("network") is None:
        monkeypatch.setattr(registry, "_cache_folder", refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Turn `Unavailable`, raised anywhere in a test of this folder, into a skip."""
    try:
        return (yield)
    except Unavailable as unavailable:
        pytest.skip(unavailable.reason)
