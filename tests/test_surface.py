"""The public surface is frozen: options of the commands and names of the package change on purpose only."""

from __future__ import annotations

import click
import pytest

import rlhfdoctor
from rlhfdoctor.cli import main

OPTIONS = {
    "analyze": {
        "paths",
        "ray_address",
        "configs",
        "framework",
        "since",
        "until",
        "form",
        "out",
        "min_confidence",
        "lang",
        "all_findings",
        "each",
        "before",
        "rules",
    },
    "watch": {
        "command",
        "pids",
        "cgroup",
        "ray_address",
        "attach",
        "interval",
        "out",
        "no_view",
        "alert_at",
        "alert_command",
        "notify",
        "metrics_port",
        "engines",
        "rules",
        "lang",
    },
    "compare": {"before", "after", "form", "out", "rules", "lang"},
    "config": {"form", "lang", "trusts"},
    "estimate": {
        "paths",
        "configs",
        "framework",
        "model",
        "nodes",
        "gpus_per_node",
        "host_memory",
        "container_memory",
        "shm",
        "gpu",
        "gpu_memory",
        "suggest",
        "brief",
        "form",
        "out",
        "lang",
    },
    "bundle": {"paths", "out", "hide", "framework", "rules"},
    "help": {"page"},
    "mcp": {"folders"},
    "report": {"paths", "out", "form", "framework", "rules", "lang"},
    "patch": {
        "paths",
        "ray_address",
        "configs",
        "framework",
        "since",
        "until",
        "rules",
        "write",
        "consent",
        "revert",
        "everything",
        "lang",
    },
    "rules list": {"rules", "lang"},
    "rules explain": {"rule_id", "rules", "lang"},
    "rules test": {"folder", "rules"},
    "rules new": {"rule_id", "folder"},
}


def find(name: str) -> click.Command:
    """A command by its name, or by those of its group and itself."""
    found: click.Command = main
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


@pytest.mark.parametrize("command", OPTIONS)
def test_options(command: str) -> None:
    """A command has exactly these options."""
    assert {p.name for p in find(command).params} == OPTIONS[command]


def test_commands() -> None:
    """These commands exist, with these below `rules`."""
    group = main.commands["rules"]
    assert isinstance(group, click.Group)
    assert (set(main.commands), set(group.commands)) == (
        {"analyze", "bundle", "compare", "config", "estimate", "help", "mcp", "watch", "patch", "report", "rules"},
        {"list", "explain", "test", "new"},
    )


@pytest.mark.parametrize("command", ["analyze", "bundle", "compare", "config", "estimate", "help", "mcp", "watch", "patch", "report", "rules"])
def test_help_has_an_example(command: str) -> None:
    """Every command's help shows an example."""
    assert "Example" in (main.commands[command].help or "")


def test_names() -> None:
    """The package exports these names, and each can be had."""
    expected = "Chart Comparison DoctorError Estimate Event Evidence Finding Fleet Gap Incident Machine Patch RuleError Setting SourceError Trace UsageError analyze analyze_each check_rules compare estimate make_charts read_trace"
    assert [name for name in rlhfdoctor.__all__ if getattr(rlhfdoctor, name)] == expected.split()
