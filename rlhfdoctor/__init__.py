"""rlhfdoctor: who killed an RLHF training run, why, what to change.

Example:
    >>> from rlhfdoctor import analyze
    >>> incident = analyze(["samples/openrlhf-save-kill/run/dmesg.txt", "samples/openrlhf-save-kill/run/driver.log"])
    >>> incident.verdict, incident.death.killer
    ('cause', 'kernel-oom-cgroup')
    >>> print(incident)
    cause: Saving a checkpoint spikes host memory (host-checkpoint-save, confidence 0.97)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlhfdoctor.version import VERSION

if TYPE_CHECKING:
    from rlhfdoctor.budget.inputs import Machine
    from rlhfdoctor.budget.types import Estimate
    from rlhfdoctor.charts import Chart
    from rlhfdoctor.comparison import Comparison
    from rlhfdoctor.core.compare import compare
    from rlhfdoctor.core.diagnose import analyze
    from rlhfdoctor.core.estimate import estimate
    from rlhfdoctor.core.fleet import analyze_each
    from rlhfdoctor.core.rule_testing import check_rules
    from rlhfdoctor.core.timeline import make_charts
    from rlhfdoctor.errors import DoctorError, RuleError, SourceError, UsageError
    from rlhfdoctor.fleet import Fleet
    from rlhfdoctor.trace.tables import Trace, read_trace
    from rlhfdoctor.types import Event, Evidence, Finding, Gap, Incident, Patch, Setting

__version__ = VERSION
__all__ = [
    "Chart",
    "Comparison",
    "DoctorError",
    "Estimate",
    "Event",
    "Evidence",
    "Finding",
    "Fleet",
    "Gap",
    "Incident",
    "Machine",
    "Patch",
    "RuleError",
    "Setting",
    "SourceError",
    "Trace",
    "UsageError",
    "analyze",
    "analyze_each",
    "check_rules",
    "compare",
    "estimate",
    "make_charts",
    "read_trace",
]

_HOMES = {
    "Chart": "charts",
    "Comparison": "comparison",
    "Fleet": "fleet",
    "analyze": "core.diagnose",
    "analyze_each": "core.fleet",
    "check_rules": "core.rule_testing",
    "compare": "core.compare",
    "make_charts": "core.timeline",
    "estimate": "core.estimate",
    "Estimate": "budget.types",
    "Machine": "budget.inputs",
    "Trace": "trace.tables",
    "read_trace": "trace.tables",
    **dict.fromkeys(("DoctorError", "RuleError", "SourceError", "UsageError"), "errors"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use, so that `doctor --help` stays fast."""
    if name not in __all__:
        raise AttributeError(f"module 'rlhfdoctor' has no attribute '{name}'")
    import importlib

    _show_in_notebooks()
    return getattr(importlib.import_module(f"rlhfdoctor.{_HOMES.get(name, 'types')}"), name)


def _show_in_notebooks() -> None:
    """Under IPython, incidents, comparisons and traces show themselves."""
    import importlib
    import sys

    if "IPython" in sys.modules:
        importlib.import_module("rlhfdoctor.jupyter").register()
