"""`doctor help`: the pages of the documentation in a terminal, for nodes without a browser."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from rlhfdoctor.cli.console import echo, make_page, tell, text_of, write
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.places import pages_folder
from rlhfdoctor.version import VERSION

_FIRST = "index"
_LINK = re.compile(r"\]\(([\w.-]+)\.md\)")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


@click.command("help")
@click.argument("page", required=False)
def show_help(page: str | None) -> None:
    """Show a page of the documentation, or list the pages.

    \b
    Examples:
      doctor help
      doctor help verdict | less
    """
    folder = pages_folder()
    names = page_names(folder)
    if page is None:
        echo(f"rlhfdoctor {VERSION}")
        for name in names:
            echo(f"  {name:12} {_title(folder / f'{name}.md')}")
        tell(say("doctor help PAGE shows one; they are Markdown files in {folder}", folder=str(folder)))
        return
    if page not in names:
        import difflib

        near = difflib.get_close_matches(page, names, 3, 0.4)
        raise UsageError(
            say("no page '{name}'. Did you mean {near:, }?", name=page, near=tuple(near))
            if near
            else say("no page '{name}'. doctor help lists them.", name=page)
        )
    text = _COMMENT.sub("", (folder / f"{page}.md").read_text("utf-8"))
    if sys.stdout is None or not sys.stdout.isatty():
        echo(text, end="")
        return
    from rich.markdown import Markdown
    from rich.theme import Theme

    screen = make_page(False, width=100)
    with screen.use_theme(Theme({"markdown.code": "bold"})):
        screen.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
    write(text_of(screen), None, colours=True)


def page_names(folder: Path) -> list[str]:
    """Names of the pages, in the order in which the first one links them."""
    return list(dict.fromkeys(_LINK.findall((folder / f"{_FIRST}.md").read_text("utf-8"))))


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next(lines).strip("# \n")
