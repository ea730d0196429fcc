"""Text without what identifies people or machines: stable tokens for users, hosts, groups, addresses, private paths.

A token keeps the form of what it replaces (an address stays an address), so that logs are read as before. Secrets are
never kept. What people wrote to the model is text like any other: names in prompts stay.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rlhfdoctor.privacy import addresses
from rlhfdoctor.privacy.form import Label, compiled, signs_of
from rlhfdoctor.privacy.labels import LABELS, is_everywhere, is_private
from rlhfdoctor.privacy.paths import PATH, hide_path
from rlhfdoctor.privacy.secrets import SECRET, cut_on, cut_words, hides, is_secret
from rlhfdoctor.privacy.sheet import Edit, Sheet
from rlhfdoctor.privacy.views import through_views

_FLAG = re.compile(r"-{0,2}[A-Za-z][\w.-]{1,60}")
_KINDS = ("user", "host", "address", "email", "path", "word", "group", "id", "phone")
_SHOWN_AS = {"group": "user", "phone": "user", "id": "host"}
"""Kinds that are counted as one of those that `doctor bundle` shows."""
_KNOWN_LETTERS, _MOST_KNOWN = 4096, 4096
"""Of a text that is kept with what became of it: a trace names the same thousands of processes again and again."""
_OWN_EMAIL = re.compile(r"(?:email|user|word)-\d+@example\.org")


class Redactor:
    """Learns the names of users and hosts from all texts, then writes each with the same token everywhere.

    Example:
        >>> redactor = Redactor()
        >>> redactor.learn("cd /home/alice/proj on node gpu-17: host=gpu-17")
        >>> redactor.text("alice@gpu-17 10.1.2.3 HF_TOKEN=hf_abcdefghijklmnop123")
        'user-1@host-1 192.0.2.1 HF_TOKEN=[secret]'
    """

    def __init__(self, hide: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        """`hide`: more words, such as a project's name, in any case, also inside longer words; `known`: frameworks."""
        self._projects = frozenset(word.lower() for word in known)
        self.counts: Counter[str] = Counter()
        """Kind -> how many places were changed."""
        self._tokens: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS}
        self._everywhere: dict[str, str] = {}
        """Name -> kind, of names that are hidden wherever they stand."""
        self._issued: set[str] = set()
        """Addresses that are tokens."""
        self._names: re.Pattern[str] | None = None
        self._learned: set[str] = set()
        self._written: dict[str, tuple[str, Counter[str]]] = {}
        """Text -> what became of it, and how many places of each kind that changed."""
        for word in hide:
            if word.strip():
                self._token("word", word.strip().lower())

    @property
    def kinds(self) -> dict[str, int]:
        """Kind -> how many different ones have a token."""
        found: Counter[str] = Counter()
        for kind, tokens in self._tokens.items():
            found[_SHOWN_AS.get(kind, kind)] += len(tokens)
        return {kind: count for kind, count in found.items() if count}

    def learn(self, text: str) -> None:
        """Notes the users and hosts that a text names."""
        if text in self._learned:
            return
        through_views(text, self._learn_from)
        self._forget()
        if len(text) <= _KNOWN_LETTERS:
            if len(self._learned) >= _MOST_KNOWN:
                self._learned.clear()
            self._learned.add(text)

    def learn_host(self, name: str, *, surely: bool = False) -> None:
        """Notes a host by name; a plain word only if `surely` one, since it would be replaced everywhere."""
        if len(name) > 3 and is_private("host", name, self._projects) and (surely or is_everywhere("host", name)):
            self._everywhere.setdefault(name, "host")
            self._token("host", name)
            self._forget()

    def _forget(self) -> None:
        """What is learned changes what is written."""
        self._names = None
        self._written.clear()

    def text(self, text: str) -> str:
        """The text with tokens in place of names, and without secrets."""
        known = self._written.get(text)
        if known is not None:
            self.counts.update(known[1])
            return known[0]
        before = self.counts.copy()
        written = through_views(text, self._write)
        if len(text) <= _KNOWN_LETTERS:
            if len(self._written) >= _MOST_KNOWN:
                self._written.clear()
            self._written[text] = written, self.counts - before
        return written

    def value(self, value: Any) -> Any:
        """The same for what JSON holds; a list's item after a flag that names a secret is one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._item(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            if all(isinstance(item, str) for item in value):
                cut = cut_words(value)
                self.counts["secret"] += sum(one != two for one, two in zip(value, cut, strict=True))
                value = cut
            return [self._item(str(before), item) for before, item in zip(["", *value], value, strict=False)]
        return value

    def _item(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and (hides(name, value) or (_FLAG.fullmatch(name) and is_secret(name, value))):
            self._secret(value)
            return SECRET
        return self.value(value)

    def _learn_from(self, sheet: Sheet) -> None:
        for label in LABELS:
            for match in self._places(sheet, label):
                for name in filter(None, match.groups()):
                    name = name.rstrip(".-")
                    if is_everywhere(label.kind, name) and is_private(label.kind, name, self._projects):
                        self._everywhere.setdefault(name, label.kind)
                        self._token(label.kind, name)

    def _places(self, sheet: Sheet, label: Label) -> Iterable[re.Match[str]]:
        signs = signs_of(label.signs)
        for begin, end in sheet.lines_with(signs, label.below) if any(sign in sheet.low for sign in signs) else ():
            yield from compiled(label.form).finditer(sheet.text, begin, end)

    def _write(self, sheet: Sheet) -> None:
        """All changes of one view of a text."""
        cut_on(sheet, self._secret)
        sheet.sub(addresses.EMAIL, self._email, ("@",))
        for label in LABELS:
            if label.in_place and any(sign in sheet.low for sign in signs_of(label.signs)):
                change = functools.partial(self._labelled, label.kind)
                sheet.edit(compiled(label.form), change, signs_of(label.signs), below=label.below)
        sheet.sub(addresses.MAC, self._address)
        sheet.sub(addresses.IP4, self._address)
        if addresses.IP6_SIGN.search(sheet.text):
            sheet.sub(addresses.IP6, self._address)
        sheet.sub(PATH, functools.partial(self._path, sheet))
        names = self._pattern()
        if names is not None:
            sheet.sub(names, self._name)

    def _secret(self, _value: str) -> None:
        self.counts["secret"] += 1

    def _email(self, match: re.Match[str]) -> str:
        if _OWN_EMAIL.fullmatch(match[0]):
            return match[0]
        return self._count("email", f"{self._token('email', match[0])}@example.org")

    def _labelled(self, kind: str, match: re.Match[str]) -> Iterable[Edit]:
        """Names in a place of names, also those that are words elsewhere."""
        for number in range(1, match.re.groups + 1):
            name = (match[number] or "").rstrip(".-")
            if name and name not in self._issued and is_private(kind, name, self._projects):
                begin = match.start(number)
                token = self._token(kind, name)
                if token != name:
                    yield begin, begin + len(name), self._count(kind, token)

    def _address(self, match: re.Match[str]) -> str:
        found = match[0]
        if found in self._issued or not addresses.is_private(match):
            return found
        known = self._tokens["address"]
        if found not in known:
            known[found] = addresses.token_of(found, len(known))
            self._issued.add(known[found])
        return self._count("address", known[found])

    def _path(self, sheet: Sheet, match: re.Match[str]) -> str:
        if sheet.is_joined and "/" not in sheet.rest(*match.span()):
            return match[0]  # the next line begins with something else
        path = hide_path(match[0], functools.partial(self._token, "path"), self._projects)
        return self._count("path", path) if path != match[0] else path

    def _name(self, match: re.Match[str]) -> str:
        hidden = self._tokens["word"].get(match[0].lower())
        if hidden is not None:
            return self._count("word", hidden)
        kind = self._everywhere[match[0]]
        return self._count(kind, self._tokens[kind][match[0]])

    def _pattern(self) -> re.Pattern[str] | None:
        if self._names is None:
            names = sorted(self._everywhere, key=len, reverse=True)
            hidden = "|".join(map(re.escape, sorted(self._tokens["word"], key=len, reverse=True)))
            whole = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])" if names else ""
            if hidden or whole:
                self._names = re.compile("|".join(part for part in (f"(?i:{hidden})" if hidden else "", whole) if part))
        return self._names

    def _token(self, kind: str, value: str) -> str:
        known = self._tokens[kind]
        if value not in known:
            known[value] = _id(value, len(known) + 1) if kind == "id" else f"{kind}-{len(known) + 1}"
            self._issued.add(known[value])
        return known[value]

    def _count(self, kind: str, token: str) -> str:
        self.counts[_SHOWN_AS.get(kind, kind)] += 1
        return token


def _id(value: str, number: int) -> str:
    """An id of the same form: figures in place of what a machine is known by.

    >>> _id("9f86d081-884c-7d65-9a2f-eaa0c55ad015", 3), _id("1320522041234", 4)
    ('00000000-0000-0000-0000-000000000003', 'id-4')
    """
    if not re.fullmatch(r"(?:0x|i-)?[0-9a-fA-F:-]{16,}", value) or value.isdigit():
        return f"id-{number}"
    head = re.match(r"0x|i-|", value)
    places = [at for at in range(head.end() if head else 0, len(value)) if value[at] not in ":-"]
    made = list(value)
    for at, digit in zip(places, f"{number:0{len(places)}d}", strict=True):
        made[at] = digit
    return "".join(made)
