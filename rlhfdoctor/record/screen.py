"""A wait that is shown on the terminal, with keys."""

from __future__ import annotations

from collections.abc import Collection

from rich.live import Live

from rlhfdoctor.i18n.message import Language
from rlhfdoctor.record.keys import Keys
from rlhfdoctor.record.view import View
from rlhfdoctor.record.watch import Detached, Outcome, Watch
from rlhfdoctor.report.safe_console import SafeConsole


def wait_on_screen(session: Watch, folder: str, words: Language, kept: Collection[int] = ()) -> Outcome:
    """Until the recording has ended, or the user left; `folder` as it is shown, `kept` the signals that came before."""
    console = SafeConsole(highlight=False, emoji=False, markup=False)
    view = View(session.state, session.title, folder, session.output.lines, words)
    live = Live(view, console=console, screen=True, auto_refresh=False, transient=True)
    with Keys() as keys, live as display:
        view.has_keys = keys.are_read

        def show() -> None:
            for key in keys.pressed():
                if key == "q":
                    raise Detached
                view.press(key)
            display.refresh()

        return session.wait(show=show, kept=kept)
