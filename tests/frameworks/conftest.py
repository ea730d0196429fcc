"""Skip a test, with the reason, when a release that it asks cannot be had on this machine."""

from collections.abc import Generator

import pytest

from .registry import Unavailable


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Turn `Unavailable`, raised anywhere in a test of this folder, into a skip."""
    try:
        return (yield)
    except Unavailable as unavailable:
        pytest.skip(unavailable.reason)
