"""Secrets of what a name has below it: lists, arrays, mappings, tables, in brackets or in the lines that follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.names import is_no_value, is_pair, is_random
from rlhfdoctor.privacy.sheet import Edit, Find, Sheet

_STEMS = r"(?:secret|api[_-]?key|access[_-]?key|credential|password|passphrase|passwd|pwd|token|(?<![\w.-])key(?=s))"
_MAKER = r"(?:(?:dict|list|set|tuple|frozenset|[A-Z]\w{1,40})(?=[(]))?"
_TYPE = r"(?:[ \t]?:[ \t]?[A-Za-z][\w.]{0,20}(?:\[[\w., \[\]]{1,60}\])?(?=[ \t]?=))?"
OPENS = (
    r"(?:secret|key|credential|password|passphrase|passwd|pwd|token)s?"
    r"(?:\\{0,4}[\"']?\]?[ \t]{0,4}:?[^\n:=]{0,40}[:=]>?\s{0,8}[a-z]{0,20}[\[({]"
    r"|\\{0,4}[\"']?[ \t]{0,4}:[ \t]{0,8}(?:&(?:amp;)?\w{1,40})?[ \t]{0,8}\r?\n"
    r"|\\{0,4}[\"']?: (?:- |&|[\w.-]{1,60}: )|\][ \t]{0,8}(?:\r?\n|[\w.-]{1,60} ?[:=])|>|[ \t]\{"
    r"|[\[.][^\n\[\]=:]{1,60}\]?[ \t]{0,4}[:=]"
    r"|(?<=s)(?:[ \t]{0,4}[:=]|[ \t]->|[ \t])[ \t]{0,4}[\"']?[a-z\d])"
)
"""What each head has; a text without it is not looked through."""
HEAD = (
    rf"(?im)(?<![\w.-])(?P<table>\[)?(?P<tag><)?(?P<flag>--?)?[\"']?(?P<name>[\w.-]{{0,60}}?{_STEMS})(?P<many>s?)"
    rf"(?:\\{{0,4}}[\"']?\]?{_TYPE}[ \t]{{0,4}}"
    rf"(?:(?:[:+]?=>?|:)\s{{0,8}}{_MAKER}|(?=\{{[ \t]{{0,8}}(?:\r?\n|[\w-]{{1,60}}[ ]?[:=])))"
    r"(?P<bracket>[\[({])(?!secret\])"
    r"|\\{0,4}[\"']?[ \t]{0,4}:[ \t]{0,8}(?:&(?:amp;)?\w{1,40}[ \t]{0,8})?(?P<lines>\r?\n)"
    r"|\\{0,4}[\"']?:[ ](?:&\w{1,40}[ ])?(?P<rest>(?=- |[\w.-]{1,60}:[ ]))"
    r"|(?P<member>\[[^\n\[\]]{1,60}\]|\.[\w-]{1,40})[ \t]{0,4}[:=][ \t]{0,4}"
    r"|(?(table)\](?:[ \t]{0,8}(?P<rows>\r?\n)|[ ](?=[\w.-]{1,60}[ ]?[:=])(?P<row>))|(?!))|(?(tag)>(?P<inside>)|(?!))"
    r"|(?<=s)(?:[ \t]{0,4}[:=]|[ \t]->|(?(flag)[ \t]|(?!)))[ \t]{0,4}(?P<several>(?=[\"']?\w)))"
)
"""A name, and how what is below it begins: a bracket, lines further to the right, YAML whose lines were put into one
(`rest`), a member, a table over lines or in one, an element of XML, or several values behind each other."""
ITEM = (
    r"(?:(?P<key>\\{0,4}[\[:]?[\"']?[\w.@/-]{1,80}\\{0,4}[\"']?\]?)[ \t]{0,4}(?:=>|[:=])\s{0,4})?"
    r"(?:\\{0,4}[\"`](?P<double>[^\"`\\\n]{4,400})\\{0,4}[\"`](?!\s{0,4}(?:=>|[:=]))"
    r"|\\{0,4}'(?P<single>[^'\\\n]{4,400})\\{0,4}'(?!\s{0,4}(?:=>|[:=]))"
    r"|(?<![^\s\"',\[\](){}>:=│])(?P<bare>[^\s\"'`,\[\](){}<>\\│]{4,400})(?<!:)(?![^\s\"'`,\[\](){}<>\\│])"
    r"(?!\(|[\"']?[ \t]{0,4}(?:=>|[:=])))"
)
"""A value, with its key if it has one; a key is none."""
_SURE = re.compile(r"(?i)passw|passphrase|pwd|api[_-]?key")
"""Names below which a value need not look drawn by chance; tokens are also words, and a workflow inherits secrets."""
_SAID = frozenset(
    [
        "name",
        "id",
        "user",
        "username",
        "login",
        "host",
        "url",
        "uri",
        "type",
        "kind",
        "env",
        "path",
        "file",
        "region",
        "description",
        "comment",
        "created",
        "expires",
    ]
)
"""Members that say whose secret it is."""
_BRACKETS = re.compile(r"[\[\](){}]")
_CLOSES = "])}"
_MARGIN = re.compile(r"(?:^|[\"'(>=])([ \t]{0,60}(?:- )?)[\"']?$")
"""What may be before the first name of a block of YAML, and how far to the right that is."""
_ROW = re.compile(r"[ \t]{0,20}(?:[\"']?[\w.@-]{1,80}[\"']?[ \t]{0,8}[=:]|[#;\r\n]|\Z)")
"""How a line of a table in TOML or of a section begins."""
_NEXT_TABLE = re.compile(r"(?<=\s)\[(?!secret\])")
_LEAST_KEY = 20
"""Of what is below `keys` and no more."""
_MOST_LETTERS, _MOST_LINES = 8000, 60


def cut_below(sheet: Sheet, cut: Find) -> None:
    """Cuts what looks drawn by chance, and all values below names of passwords and the like.

    `cut` gets matches whose groups are the secrets.
    """
    for is_sure in (True, False):  # what is below a name that is sure may be below one that is not
        opens = {match[0].partition("\n")[0] for match in compiled(OPENS).finditer(sheet.low)}
        if opens:
            sheet.edit(compiled(HEAD), _Below(is_sure, cut).edits, sorted(opens), below=1)


class _Below:
    """Finds secrets below names, of which each is sure or none is; what is below a name is looked through once."""

    def __init__(self, is_sure: bool, cut: Find) -> None:
        self._is_sure, self._cut = is_sure, cut
        self._done = 0

    def edits(self, match: re.Match[str]) -> Iterable[Edit]:
        """The changes below one name."""
        if match.start() >= self._done and (_SURE.search(match["name"]) is not None) == self._is_sure:
            for item in self._secrets(match):
                yield from self._cut(item)

    def _secrets(self, match: re.Match[str]) -> Iterator[re.Match[str]]:
        name, is_several = match["name"], match["several"] is not None
        is_sure = (
            self._is_sure and match["rest"] is None and (match["many"] != "" or (match["member"] or "[")[0] == "[")
        )
        begin, end = _region(match)
        for item in compiled(ITEM).finditer(match.string, begin, end):
            if _is_secret(name, item, is_sure) and (not is_several or re.search(r"\d", item[0])):
                yield item
                if is_several:
                    continue
            if is_several or match["member"]:
                return  # what goes on is something else
        self._done = end


def _is_secret(name: str, item: re.Match[str], is_sure: bool) -> bool:
    value, key = item["double"] or item["single"] or item["bare"], (item["key"] or "").strip("\"'\\[:]")
    if is_no_value(value) or "[secret]" in item.string[max(item.start() - 1, 0) : item.end() + 8]:
        return False
    if is_random(value):
        return name.lower() != "key" or len(value) >= _LEAST_KEY
    is_sure = is_sure or _SURE.search(key) is not None
    return is_sure and key.lower() not in _SAID and is_pair(name, value)


def _region(match: re.Match[str]) -> tuple[int, int]:
    """Begin and end of what is below a name."""
    text, begin = match.string, match.end()
    most = min(begin + _MOST_LETTERS, len(text))
    if match["bracket"] is not None:
        return begin, _closing(text, begin, most)
    if any(match[name] is not None for name in ("rest", "member", "several")):
        end = text.find("\n", begin, most)
    elif match["rows"] is not None:
        end = _last(text, begin, most, _ROW.match)
    elif match["row"] is not None:
        end = next((sign.start() for sign in _NEXT_TABLE.finditer(text, begin, most)), -1)
    elif match["inside"] is not None:
        end = text.find("</" + match["name"], begin, most)
        most = begin if end < 0 else most
    else:
        end = _indented(text, match.start("name"), begin, most)
    return begin, end if end >= 0 else most


def _closing(text: str, begin: int, most: int) -> int:
    """Where the bracket before a place is closed; the end of what may be looked at if it is not."""
    depth = 1
    for bracket in _BRACKETS.finditer(text, begin, most):
        depth += -1 if bracket[0] in _CLOSES else 1
        if not depth:
            return bracket.start()
    return most


def _indented(text: str, at: int, begin: int, most: int) -> int:
    """The end of the lines that are further to the right than the name at a place, or are items of its list."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    margin = _MARGIN.search(before)
    if margin is None:
        return begin
    own = margin[1]

    def belongs(line: str) -> bool:
        indent = len(line) - len(line.lstrip(" \t"))
        is_item = line[indent : indent + 2] == "- " and "-" not in own
        return not line.strip() or indent > len(own) or (indent == len(own) and is_item)

    return _last(text, begin, most, belongs)


def _last(text: str, begin: int, most: int, belongs: Callable[[str], object]) -> int:
    """The end of the lines from a place on that belong to what is above them."""
    for _ in range(_MOST_LINES):
        end = text.find("\n", begin, most) + 1 or most
        if begin >= most or not belongs(text[begin:end]):
            break
        begin = end
    return begin
