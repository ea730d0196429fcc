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
