"""Packages that come with an extra of this one."""

from __future__ import annotations

from importlib.util import find_spec

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import Message, say


def require_polars(what: Message) -> None:
    """Polars comes with the extra `report`: it is four fifths of what an installation with it weighs.

    Raises:
        UsageError: it is not installed.
    """
    if find_spec("polars") is None:
        raise UsageError(say("{what} need polars: pip install 'rlhfdoctor[report]'", what=what))


def require_mcp() -> None:
    """The SDK of the Model Context Protocol comes with the extra `mcp`: it is a web server's packages, too.

    Raises:
        UsageError: it is not installed.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise UsageError(say("doctor mcp needs the package mcp, 2 or newer: pip install 'rlhfdoctor[mcp]'"))
