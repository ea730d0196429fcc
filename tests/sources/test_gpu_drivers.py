"""Which GPUs a machine has is known by device files; devices that nothing reads are a gap, not a machine without GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.record.machine import _reader
from rlhfdoctor.sources.gpu_drivers import DRIVERS, find_drivers


@pytest.mark.parametrize(
    ("device", "name"),
    [("nvidiactl", "GPUs"), ("dxg", "GPUs"), ("kfd", "AMD GPUs"), ("davinci_manager", "Ascend NPUs")],
)
def test_found_by_its_device(tmp_path: Path, device: str, name: str) -> None:
    """One device file is enough."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / device).touch()
    assert [driver.name for driver in find_drivers(str(tmp_path))] == [name]


def test_none(tmp_path: Path) -> None:
    """A machine without them has no driver."""
    assert find_drivers(str(tmp_path)) == []


@pytest.mark.parametrize("driver", [d for d in DRIVERS if d.name != "GPUs"], ids=lambda driver: driver.name)
def test_unread_devices_say_so(driver: object) -> None:
    """Reading them fails with what shows their memory; the slow lane makes a gap of that."""
    with pytest.raises(OSError, match="is not read by this version"):
        _reader(driver)()  # type: ignore[arg-type]
