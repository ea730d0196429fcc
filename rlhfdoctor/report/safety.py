"""What the safety of a patch means."""

from __future__ import annotations

from collections.abc import Mapping

from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.types import Safety

COLOURS: Mapping[Safety, str] = {"safe": "green", "consent": "yellow", "show": "magenta"}
EXPLAINED: Mapping[Safety, Message] = {
    "safe": say("does not change what is learned and cannot stop the run from starting"),
    "consent": say("needs your consent: it costs speed, memory elsewhere, or precision"),
    "show": say("shown only, never written: an edit of code, or it changes what is learned"),
}
