"""What the pages share: style sheet, policy, templates in which text is escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlhfdoctor.i18n.message import Language, template
from rlhfdoctor.report.sanitize import clean, without_secrets


def make_environment(words: Language) -> Environment:
    """Templates with the filters that every page uses, in the language of `words`."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("rlhfdoctor.report", "templates"), PackageLoader("rlhfdoctor.report", "sections")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clean": clean, "without_secrets": without_secrets, "said": words}
    return environment


def shared_values(words: Language, script: str = "") -> dict[str, Any]:
    """What every page is rendered with; `script` is the page's own, if it has one."""
    css = read_template("report.css")
    scripts = f" script-src {_hash(script)};" if script else ""
    return {
        "policy": f"default-src 'none'; style-src {_hash(css)};{scripts} base-uri 'none'; form-action 'none'",
        "css": Markup(css),  # our own file, hashed by the policy
        "t": words,
        "_": lambda text, **values: words(template(text, **values)),
    }


def read_template(name: str) -> str:
    """A file of the templates' folder."""
    return (resources.files("rlhfdoctor.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
