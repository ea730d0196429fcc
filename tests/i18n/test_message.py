"""Messages: what they say in English, and what a language makes of them."""

from __future__ import annotations

import pytest

from rlhfdoctor.i18n.message import NOTHING, Language, Message, joined, plural, quoted, say, template, term

CHINESE = Language(
    "zh",
    {
        "the {role} held {held:bytes}": "{role} 占用 {held:bytes}",
        "actor": "演员",
        "; ": "；",
        ", ": "，",
        "{n} step": ("{n} 步",),
        "at {at:time}": "时间 {at:time}",
    },
    choose=lambda n: 0,
    stop="。",
    spaced=True,
)
RUSSIAN = Language(
    "ru",
    {"{n} step": ("{n} шаг", "{n} шага", "{n} шагов")},
    choose=lambda n: 0 if n % 10 == 1 and n % 100 != 11 else 1 if 2 <= n % 10 <= 4 and not 12 <= n % 100 <= 14 else 2,
)


@pytest.mark.parametrize(
    ("message", "english"),
    [
        (say("plain"), "plain"),
        (say("{a} of {b}", a=3, b=None), "3 of None"),
        (say("{size:bytes}", size=3 << 30), "3.00 GiB"),
        (say("{part:share} in {waited:s}", part=0.25, waited=1800), "25 % in 30 min"),
        (say("{left:duration}", left=95), "1 min 35 s"),
        (say("at {at:time}", at=0.5), "at 1970-01-01T00:00:00.500Z"),
        (say("{ratio:.2f} and {part:.0%}", ratio=1.005, part=0.5), "1.00 and 50%"),
        (say("{names}", names=("a", "b")), "a, b"),
        (say("{parts:; }", parts=(say("one"), quoted("two"))), "one; two"),
        (say("{outer}", outer=say("{inner}", inner=term("actor"))), "actor"),
        (say("braces {{are}} kept, {a}", a="{b}"), "braces {are} kept, {b}"),
        (say("a {place} without a value"), "a {place} without a value"),
        (template(" two \n lines of {host.limit_bytes} ", **{"host.limit_bytes": 7}), "two lines of 7"),
        (plural("{n} step", "{n} steps", 1), "1 step"),
        (plural("{n} step", "{n} steps", 0), "0 steps"),
        (say("{a:.1f} {b:bytes} {c:duration}", a=None, b="x", c=float("inf")), "None x inf"),
        (say("{a:.1f}", a=(1.0, 2.0)), "1.0, 2.0"),
        (say("{a:bytes}", a=(1024, 2048)), "1.00 KiB, 2.00 KiB"),
        (quoted("100 % {of} it"), "100 % {of} it"),
        (quoted(""), ""),
        (joined(say("a"), NOTHING, say("b")), "a; b"),
        (joined(say("a"), NOTHING), "a"),
        (joined(), ""),
        (joined(say("a"), say("b"), by=" and "), "a and b"),
    ],
)
def test_english(message: Message, english: str) -> None:
    """Places are filled by kind of value; text is never taken for a template."""
    assert str(message) == english


@pytest.mark.parametrize(
    ("message", "chinese"),
    [
        (say("the {role} held {held:bytes}", role=term("actor"), held=3 << 30), "演员占用 3.00 GiB"),
        (say("the {role} held {held:bytes}", role="actor", held=1024), "actor 占用 1.00 KiB"),
        (joined(term("actor"), term("actor")), "演员；演员"),
        (joined(say("unknown sentence"), term("actor")), "unknown sentence；演员"),
        (say("{names}", names=(term("actor"), "b")), "演员，b"),
        (plural("{n} step", "{n} steps", 5), "5 步"),
        (quoted("actor"), "actor"),
        (quoted("/tmp/训练run/第1 次 运行"), "/tmp/训练run/第1 次 运行"),
        (joined(term("actor"), quoted("a训练b"), by=" "), "演员 a训练b"),
        (joined(term("actor"), quoted("训b"), term("actor"), by=" "), "演员 训b 演员"),
        (joined(say("at {at:time}", at=0), quoted("训 练"), by="; "), "时间 1970-01-01T00:00:00.000Z；训 练"),
        (joined(quoted("a"), term("actor"), quoted("b"), term("actor"), by=" "), "a 演员 b 演员"),
        (joined(term("actor"), quoted("训b"), term("actor"), by=": "), "演员: 训b: 演员"),
    ],
)
def test_another_language(message: Message, chinese: str) -> None:
    """Messages within messages are translated, names and quotations are not; what a catalogue lacks stays English."""
    assert CHINESE(message) == chinese


@pytest.mark.parametrize(("n", "text"), [(1, "1 шаг"), (3, "3 шага"), (5, "5 шагов"), (11, "11 шагов"), (21, "21 шаг")])
def test_plural_forms(n: int, text: str) -> None:
    """A language counts by its own rule."""
    assert RUSSIAN(plural("{n} step", "{n} steps", n)) == text


def test_parts() -> None:
    """A message knows what it is made of, and compares by it."""
    inner = say("pin_memory is {value}", value="true")
    outer = say("{fact} ({remark})", fact=say("it is page-locked"), remark=inner)
    assert outer.mentions(inner) and outer.mentions(outer) and not inner.mentions(outer)
    assert joined(outer, say("x")).mentions(inner)
    assert say("a", b=1) == say("a", b=1) != say("a", b=2)
    assert len({inner, say("pin_memory is {value}", value="true")}) == 1
    assert not NOTHING and inner


def test_changed_text() -> None:
    """Quoted text can be renamed wherever it is; sentences and numbers stay."""
    message = say("{what}: {files}, {n}", what=quoted("/tmp/x/a"), files=("/tmp/x/b", quoted("c")), n=3)
    assert str(message.with_text(lambda text: text.replace("/tmp/x/", "run.zip!"))) == "run.zip!a: run.zip!b, c, 3"


def test_for_machines() -> None:
    """Ids and arguments in plain types, also within lists."""
    message = say("{role} held {held:bytes}: {parts}", role=term("actor"), held=3, parts=("a", say("b {c}", c=None)))
    assert message.to_dict() == {
        "id": "{role} held {held:bytes}: {parts}",
        "arguments": {"role": {"id": "actor"}, "held": 3, "parts": ["a", {"id": "b {c}", "arguments": {"c": None}}]},
    }
