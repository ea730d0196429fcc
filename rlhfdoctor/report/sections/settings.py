"""The settings in force, for programs."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Setting


def _row(setting: Setting) -> dict[str, Any]:
    return {
        "setting": setting.name,
        "spelled": setting.spelled,
        "value": setting.written,
        "file": setting.origin.file,
        "line": setting.origin.line,
    }


SECTION = Section(name="settings", place=80, to_dict=lambda incident: [_row(setting) for setting in incident.settings])
