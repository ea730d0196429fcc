"""A framework's folder is checked when it is read: each fault has its file and line, and what was meant."""

from __future__ import annotations

import pytest

from rlhfdoctor.errors import PluginError
from rlhfdoctor.plugins.folders import _clashes
from rlhfdoctor.plugins.read import read_spec
from rlhfdoctor.plugins.spec import FrameworkSpec, Package

GOOD = "framework: some\ntitle: Some\npackages: [{name: some-train}, {name: some, epoch: 1}]\n"


def read(text: str) -> FrameworkSpec:
    """A specification of the folder `some`."""
    return read_spec(text, "some/framework.yaml", "some")


def test_reads_what_is_declared() -> None:
    """Values have their types."""
    found = read(GOOD + "actors: {SomeWorker: actor, Helper: }\n")
    assert found.packages == (Package(name="some-train"), Package(name="some", epoch=1))
    assert found.actors == {"SomeWorker": "actor", "Helper": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "pathx: [/some/]\n", "some/framework.yaml:4: unknown key 'pathx'. Did you mean 'paths'?"),
        ("framework: some\n", "some/framework.yaml:1: 'title' is missing"),
        ("framework: other\ntitle: x\n", "some/framework.yaml:1: framework is 'other', its folder is 'some'"),
        (GOOD + "order: soon\n", "some/framework.yaml:4: a whole number is wanted, not 'soon'"),
        (GOOD + "commands: ['a(b']\n", "some/framework.yaml:4: 'a(b' is no regular expression"),
        (GOOD + "paths: /some/\n", "some/framework.yaml:4: a list is wanted"),
        (
            "framework: some\ntitle: x\npackages: [{namex: x}]\n",
            "some/framework.yaml:3: a package: unknown key 'namex'. Did you mean 'name'?",
        ),
        ("framework: some\ntitle: x\npackages: [{epoch: 1}]\n", "some/framework.yaml:3: a package: 'name' is missing"),
        (GOOD + "actors: {Worker: cook}\n", "some/framework.yaml:4: unknown role 'cook'"),
        (GOOD + "roles: {actors: x}\n", "some/framework.yaml:4: unknown role 'actors'. Did you mean 'actor'?"),
        (GOOD + "functions: {updates: x}\n", "some/framework.yaml:4: unknown phase 'updates'. Did you mean 'update'?"),
        (GOOD + "marks: {rolout: x}\n", "some/framework.yaml:4: unknown phase 'rolout'. Did you mean 'rollout'?"),
        (
            GOOD + "logs: [{event: phase.stop, regex: a, sample: a}]\n",
            "some/framework.yaml:4: unknown event 'phase.stop'. Did you mean 'phase.step'?",
        ),
        (
            GOOD + "logs: [{event: phase.step, regex: a, sample: b}]\n",
            "some/framework.yaml:4: the sample of 'phase.step' does not match: b",
        ),
        (
            GOOD + "traits: [trains_on_cpu]\n",
            "some/framework.yaml:4: unknown trait 'trains_on_cpu'. Did you mean 'trains_on_cpus'?",
        ),
        (
            GOOD + "traits: [{trait: engine_colocated, setting: x}]\n",
            "some/framework.yaml:4: the trait engine_colocated: 'setting' and 'in' go together",
        ),
        (
            GOOD + "facts: [{fact: offload.pined, value: true, says: x}]\n",
            "some/framework.yaml:4: unknown name 'offload.pined'. Did you mean",
        ),
        (
            GOOD + "facts: [{fact: offload.pinned, value: true, says: x, versions: new}]\n",
            "some/framework.yaml:4: 'new' is no specifier of releases",
        ),
        ("- some\n", "some/framework.yaml:1: a mapping is wanted"),
        ("framework: [\n", "some/framework.yaml:2:"),
    ],
)
def test_faults_have_a_place(text: str, message: str) -> None:
    """File, line, what is wrong, and the nearest known word."""
    with pytest.raises(PluginError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


def test_all_faults_at_once() -> None:
    """A reader of the message repairs all of them in one go."""
    with pytest.raises(PluginError) as caught:
        read(GOOD + "order: soon\npathx: []\n")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("one", "other", "fault"),
    [
        ({"actors": {"Worker": "actor"}}, {"actors": {"Worker": None}}, "the Ray class Worker is one's"),
        ({"packages": (Package(name="p"),)}, {"packages": (Package(name="p"),)}, "the package p is one's"),
        ({}, {"extends": "gone"}, "extends 'gone', which is not there"),
    ],
)
def test_frameworks_do_not_claim_the_same(one: dict, other: dict, fault: str) -> None:  # type: ignore[type-arg]
    """A Ray class or package decides for one framework."""
    faults = _clashes(
        [FrameworkSpec(framework="one", title="1", **one), FrameworkSpec(framework="two", title="2", **other)]
    )
    assert len(faults) == 1 and faults[0].endswith(fault)
