"""Sends one line to the URLs of --notify, by apprise: a process of its own that ends after half a minute at most.

    RLHFDOCTOR_NOTIFY="slack://..." python -m rlhfdoctor.record.send TEXT

A failure is written to standard error, which is the recorder's log, by the URL's service: the rest of it is secret.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.record.notices import BELL, take_urls

_LIMIT_S = 30
_TITLE = "rlhfdoctor"


def check(urls: Iterable[str]) -> None:
    """Whether all of them can be used.

    Raises:
        UsageError: apprise is not installed, or does not know such a URL.
    """
    from importlib.util import find_spec

    wanted = [url for url in urls if url != BELL]
    if wanted and find_spec("apprise") is None:
        raise UsageError(say("--notify: the package apprise is missing: pip install 'rlhfdoctor[notify]'"))
    for url in wanted:
        if not _add(url):
            raise UsageError(
                say(
                    "--notify {service}...: no such URL is known. For example: slack://..., lark://..., "
                    "dingtalk://..., wecombot://..., mailto://..., json://host, or bell",
                    service=service_of(url),
                )
            )


def service_of(url: str) -> str:
    """What of a URL may be shown.

    >>> service_of("slack://T1/B2/token"), service_of("token")
    ('slack://', '')
    """
    scheme, found, _ = url.partition("://")
    return f"{scheme[:20]}://" if found and scheme.isalnum() else ""


def _add(url: str):  # type: ignore[no-untyped-def]
    """A service of apprise, or None. Its log is off, since it may quote the URL; what a plugin raises it catches."""
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    logging.getLogger("apprise").propagate = False
    service = apprise.Apprise()
    return service if service.add(url) else None


def main(arguments: Sequence[str]) -> int:
    """0 if all were notified."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LIMIT_S)
    failed = 0
    for url in take_urls():
        service = _add(url)
        if not (service and service.notify(title=_TITLE, body=arguments[1])):
            failed += 1
            print(f"doctor: --notify {service_of(url)}...: not sent", file=sys.stderr, flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    os._exit(main(sys.argv))
