"""Sphinx's settings for the documentation: `make site` builds rlhfdoctor/docs into .venv/site, without a network."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rlhfdoctor.cli.help import page_names  # noqa: E402
from rlhfdoctor.version import VERSION  # noqa: E402

project, author, release = "rlhfdoctor", "the rlhfdoctor authors", VERSION
html_title = f"rlhfdoctor {VERSION}"
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_copy_source = html_show_sourcelink = False
html_show_copyright = False
pygments_style, pygments_dark_style = "default", "monokai"
highlight_language = "text"  # a block without a language is a shell's or a screen


def _add_contents(_app: Sphinx, name: str, source: list[str]) -> None:
    """The first page's own links are the table of contents; Markdown elsewhere shows them as they are."""
    if name == "index":
        names = "\n".join(page_names(ROOT / "rlhfdoctor" / "docs"))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def setup(app: Sphinx) -> None:
    """What Sphinx calls at its start."""
    app.connect("source-read", _add_contents)
