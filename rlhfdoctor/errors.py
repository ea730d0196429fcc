"""Errors that a user may see: a message with the cause, then the next step, never a traceback."""

from __future__ import annotations


class DoctorError(Exception):
    """Base of all errors that end a command with exit code 2."""


class UsageError(DoctorError):
    """The command was used in a way that cannot work."""


class SourceError(DoctorError):
    """A file that the user named cannot be used at all.

    Anything else that is missing on a real cluster is a `Gap`, not an error.
    """


class RuleError(DoctorError):
    """One or more faults in a rule; each line names file and line."""


class PluginError(DoctorError):
    """One or more faults in a framework's folder; each line names file and line."""
