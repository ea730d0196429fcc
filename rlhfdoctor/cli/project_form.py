"""The form of a project file: its keys with their types."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class MachineForm(Struct):
    """What `doctor estimate` cannot know from files; the names are those of its options."""

    nodes: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    gpus_per_node: Annotated[int, Meta(ge=0, le=1024)] | None = None
    gpu: str | None = None
    host_memory: str | None = None
    container_memory: str | None = None
    shm: str | None = None


class ProjectForm(Struct):
    """The file, or the doctor's table of a shared one."""

    framework: str | None = None
    language: str | None = None
    rules: list[str] | None = None
    hide: list[str] | None = None
    machine: MachineForm | None = None
