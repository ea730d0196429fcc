"""Errors that the program, the GPU driver, the fabric or the object store reported."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact
from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.handled import is_handled
from rlhfdoctor.i18n.message import Message, quoted, say
from rlhfdoctor.logs.kernel import HARDWARE_XIDS, read_xid
from rlhfdoctor.privacy.secrets import shortened
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_HOLE = re.compile(r"Tried to allocate [^\n]{0,400}(?: \.\.\.|…|\[\.\.\.\]) ?[a-z]")
"""Dots within the figures of the allocator's message."""
_TRACEBACK_LINES = 40
"""Before the error at its end, in which its frames stand."""


def find_errors(case: Case) -> Iterator[Evidence]:
    """An error that the program raised itself; what the object store and the GPU driver report."""
    own = [
        e
        for e in case.of(EVENT.python.error, EVENT.python.bare_error)
        if (found := classify(e)) and found[0] == "exception"
    ]
    own = [e for e in own if not (_RESOURCE.search(e.text) or _is_cut(case, e) or is_handled(case, e))]
    if own:
        says = quoted(shortened(f"{own[-1].fields.get(FIELD.name)}: {own[-1].fields.get(FIELD.message_text, '')}", 300))
        yield Evidence(name=FACT.python.own_error, value=True, says=says, origin=own[-1].origin, text=own[-1].text)
        yield Evidence(name=FACT.python.error_says, value=says, says=says, origin=own[-1].origin, text=own[-1].text)
    else:
        crash = case.first(
            *(EVENT.python.signal, EVENT.python.fatal, EVENT.kernel.segfault, EVENT.torch.cuda_error),
            *(EVENT.torch.cuda_oom, EVENT.numbers.stopped, EVENT.numbers.diverged, EVENT.ray.worker_exit_code),
        )
        says = (
            _crash_says(case, crash)
            if crash is not None
            else say("The program ended with an error whose text is not in the logs.")
        )
        yield Evidence(name=FACT.python.error_says, value=says, says=says, origin=crash.origin if crash else None)
    for event in case.of(EVENT.kernel.xid):
        xid = read_xid(event.fields.get(FIELD.xid), event.fields.get(FIELD.detail_text))
        if xid in HARDWARE_XIDS:
            yield Evidence(
                name=FACT.gpu.hardware_xid,
                value=xid,
                says=say("Xid {xid}", xid=xid),
                origin=event.origin,
                text=event.text,
            )
    fabric = case.first(*_FABRIC)
    if fabric is not None:
        yield Evidence(
            name=FACT.nccl.ib_text, value=fabric.text[-200:], says=quoted(fabric.text[-200:]), origin=fabric.origin
        )
    refused = case.first(EVENT.torch.cuda_oom)
    if refused is not None and (_is_cut(case, refused) or _HOLE.search(refused.text)):
        yield fact(FACT.cuda.figures_cut, True, say("the message is cut off before its figures end"), refused)
    yield from _full_first(case)
    for kind in (EVENT.ray.object_store_capacity, EVENT.ray.object_store_usage):
        store = case.first(kind)
        value = store.fields.get(FIELD.capacity_bytes) if store is not None else None
        if store is not None and isinstance(value, int):
            yield Evidence(
                name=FACT.store.capacity_bytes,
                value=value,
                says=say("the object store holds {capacity:bytes}", capacity=value),
                origin=store.origin,
                text=store.text,
            )


def _is_cut(case: Case, error: Event) -> bool:
    """Whether the end of the message is missing, which would say of what kind the error is.

    It ends in dots, or at the edge of a screen beyond which no line of the file goes.
    """
    text = error.text.rstrip(" `\"'")
    if text.endswith(("...", "…", "[...]")):
        return True
    longest = case.index.longest.get(error.origin.file, 0)
    return len(error.text) == longest and longest in _SCREENS


def _full_first(case: Case) -> Iterator[Evidence]:
    """Whether Ray's OutOfDiskError began with the store, or with the disk that should have taken what it spills.

    A store that is full without spilling goes on in the file system of the session (dlmalloc.cc's fallback) and fills
    that; a disk that is full already takes nothing, and Ray warns of it before.
    """
    error = case.first(EVENT.ray.out_of_disk)
    waited, disk = case.first(EVENT.ray.object_store_retry), case.first(EVENT.ray.disk_full)
    if error is None:
        return
    order = {id(event): place for place, event in enumerate(case.events)}
    spilled = any(str(e.fields.get(FIELD.spilled_text, "0")) != "0" for e in case.of(EVENT.ray.spilled))
    first = waited is not None and not spilled and (disk is None or order[id(waited)] < order[id(disk)])
    yield fact(
        FACT.store.full_first,
        first,
        say("the object store was full before the disk was, and nothing was spilled")
        if first
        else say("the disk was full, so that objects could not be spilled"),
        waited if first and waited is not None else error,
    )


def _crash_says(case: Case, crash: Event) -> Message:
    """A crash with the Python frame that is shown for it: by faulthandler behind it, or by the traceback before it."""
    near = [e for e in case.around(crash, 40) if e.kind == EVENT.python.frame]
    at = crash.origin.line or 0
    frames = [e for e in near if (e.origin.line or 0) > at]
    frames += [e for e in reversed(near) if at - _TRACEBACK_LINES <= (e.origin.line or 0) < at]
    own = next((e for e in frames if "-packages/" not in e.text and "/lib/python" not in e.text), None)
    what = str(crash.fields.get(FIELD.name) or crash.fields.get(FIELD.error_text) or shortened(crash.text, 200))
    if own is None:
        return say("{error}; no Python frame is shown for it.", error=what)
    return say(
        "{error} in {function}(), {path} line {line}.",
        error=what,
        function=own.fields.get(FIELD.function_text),
        path=own.fields.get(FIELD.path_text),
        line=own.fields.get(FIELD.line),
    )


_FABRIC = (EVENT.nccl.ib_error, EVENT.nccl.socket_setup, EVENT.nccl.unreachable, EVENT.gloo.mesh_failed)
_SCREENS = (80, 100, 120, 132, 160, 200)
"""Widths of terminals in columns."""
_RESOURCE = re.compile(
    r"out of memory|No available memory|cache blocks|KV cache|Errno 28|Errno 12|Errno 24|Too many open files"
    r"|start new thread|object store|/dev/shm|NCCL|Connection|killed by signal|ECC error|Memory usage increased"
    r"|clients joined|client socket has|while trying to connect|Free memory on device"
    r"|Resource temporarily|process group",
    re.I,
)
