"""Errors that a user may see: a message with the cause, then the next step, never a traceback."""

from __future__ import annotations

from rlhfdoctor.i18n.message import Message, quoted


class DoctorError(Exception):
    """Base of all errors that end a command with exit code 2; its text is English, `says` is for any language."""

    def __init__(self, says: Message) -> None:
        """`says`: the cause, then the next step."""
        super().__init__(str(says))
        self.says = says


class UsageError(DoctorError):
    """The command was used in a way that cannot work."""


class SourceError(DoctorError):
    """A file that the user named cannot be used at all.

    Anything else that is missing on a real cluster is a `Gap`, not an error.
    """


class _FaultsError(DoctorError):
    """Faults of files that maintainers write, one a line: English in every language, as editors and searches want."""

    def __init__(self, faults: Message | str) -> None:
        """`faults`: file, line and fault, one a line; a message where it is no fault of a file."""
        super().__init__(quoted(faults) if isinstance(faults, str) else faults)


class RuleError(_FaultsError):
    """One or more faults in a rule; each line names file and line."""


class PluginError(_FaultsError):
    """One or more faults in a framework's folder; each line names file and line."""
