"""What a watcher knows, and how it is shown: in a terminal of any size, as plain lines, without escapes."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from rlhfdoctor.i18n.language import languages, load_language
from rlhfdoctor.i18n.message import NOTHING, quoted, say
from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.record.phrasing import say_event, say_exit, say_left, say_line, say_outlook, say_shared, say_word
from rlhfdoctor.record.state import _SHOWN, State
from rlhfdoctor.record.view import View, sparkline
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import message_of, said
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import say_limit
from tests.record.build import Row, event, make_sample, phase

SIZES = pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
NASTY = "a\x1b[31mred\x1b]0;title\x07\x1b[2J\r\x08\x9b5m\u202eb"


def make_state(*items: Sample | dict[str, Any]) -> State:
    """A state after these samples and events."""
    state = State()
    for item in items:
        state.take(item, TABLES)
    return state


def seen(uid: int, role: str | None, name: str = "python") -> dict[str, Any]:
    """A process that was seen."""
    return event("process.seen", uid=uid, pid=100 + uid, name=name, role=role)


def known(uid: int, name: str, level: str = "", size: int = 10 * GIB) -> dict[str, Any]:
    """A limit that was seen."""
    return event("limit.seen", uid=uid, name=name, level=level, limit_bytes=size)


def limit_row(used: int, left_s: float | None = None, size: int = 10 * GIB) -> Row:
    """A limit's row as it is stored: seconds as thousandths."""
    left = None if left_s is None else left_s * 1000
    return {
        "used_bytes": used,
        "limit_bytes": size,
        "left_s": left,
        "left_low_s": left,
        "left_high_s": left,
        "slope_bytes_per_s": MIB,
        "steps_count": 0,
        "seen_s": 120_000,
    }


def held(anon: int, shmem: int = 0) -> Row:
    """A process's row."""
    return {"rss_anon_bytes": anon, "rss_shmem_bytes": shmem, "locked_bytes": 0, "pinned_bytes": 0}


def make_run(*more: Sample | dict[str, Any]) -> State:
    """A run with an actor, two critics and a process without a role, near the container's limit."""
    return make_state(
        event("recorder.start"),
        event("job.started", pid=4711),
        seen(1, "actor"),
        seen(2, "critic"),
        seen(3, "critic"),
        seen(4, None),
        known(1, "node", size=64 * GIB),
        known(2, "cgroup", "/job"),
        phase(1, "rollout", step=7),
        make_sample(
            2.0,
            process={1: held(4 * GIB, GIB), 2: held(GIB, 2 * GIB), 3: held(2 * GIB, GIB), 4: held(MIB)},
            limit={1: limit_row(20 * GIB, size=64 * GIB), 2: limit_row(8 * GIB, 90.0)},
            host={0: {"shmem_bytes": 3 * GIB, "shm_used_bytes": GIB, "shm_unlinked_bytes": 0}},
            recorder={0: {"cpu_us": 1000, "rss_bytes": 30 * MIB}},
        ),
        *more,
    )


def test_processes() -> None:
    """A process is what it was called last, and is forgotten when it is gone."""
    state = make_state(
        seen(1, None), event("process.named", uid=1, role="actor"), seen(2, "critic"), event("process.gone", uid=2)
    )
    assert {uid: row["role"] for uid, row in state.processes.items()} == {1: "actor"}


def test_roles() -> None:
    """Anonymous memory adds up over a role's processes, shared memory is that of the largest one."""
    roles = make_run().roles
    found = {name: (role.count, role.anon_bytes, role.shmem_bytes) for name, role in roles.items()}
    assert found == {"actor": (1, 4 * GIB, GIB), "critic": (2, 3 * GIB, 2 * GIB), "other": (1, MIB, 0)}


def test_role_that_is_gone() -> None:
    """A role without processes in the newest sample has no memory."""
    roles = make_run(make_sample(3.0, process={1: held(GIB)})).roles
    assert (roles["critic"].count, roles["critic"].anon_bytes, roles["actor"].anon_bytes) == (0, 0, GIB)


def test_limits() -> None:
    """Limits have use, size and forecast of the newest sample, in seconds."""
    limit = make_run().limits[2]
    assert (limit.used_bytes, limit.full_ratio, limit.left_s, limit.slope_bytes_per_s) == (8 * GIB, 0.8, 90.0, MIB)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({1: limit_row(9 * GIB), 2: limit_row(GIB, 50.0), 3: limit_row(GIB, 40.0)}, "shm"),
        ({1: limit_row(9 * GIB), 2: limit_row(GIB), 3: limit_row(GIB)}, "node"),
    ],
)
def test_binding(rows: Mapping[int, Row], expected: str) -> None:
    """The limit that is reached first binds, else the fullest one."""
    binding = make_state(known(1, "node"), known(2, "cgroup"), known(3, "shm"), make_sample(1.0, limit=rows)).binding
    assert binding is not None
    assert binding.name == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([phase(1, "rollout", step=7)], ("rollout", 7)),
        ([phase(1, "rollout"), event("mark", step=8)], ("rollout", 8)),
        ([phase(1, "rollout"), phase(2, "update"), phase(3, "update", edge="end")], ("update", None)),
        ([phase(1, "rollout", edge="end")], (None, None)),
    ],
)
def test_marks(items: Sequence[dict[str, Any]], expected: tuple[str | None, int | None]) -> None:
    """Phase and step are those that began last."""
    state = make_state(*items)
    assert (state.phase, state.step) == expected


def test_end() -> None:
    """How the command ended, and why the recording did; a recorder that goes on has not ended."""
    items = [
        event("job.started", pid=7),
        event("job.exited", code=-9, why="x"),
        event("recorder.end", why="the command ended"),
    ]
    state = make_state(*items)
    again = make_state(*items, event("recorder.start"))
    assert (state.job_pid, state.exit_code, state.why, state.ended) == (7, -9, "x", "the command ended")
    assert again.ended is None


def test_kills() -> None:
    """Kills in the run's cgroups are counted by the counter's rise; those of the node may be another job's."""
    items = [
        event("oom_kill", level="node", count=4),
        event("oom_kill", level="/a", count=1),
        event("oom_kill", level="/b", count=2),
    ]
    assert make_state(*items).killed_count == 3


def test_repeated_events() -> None:
    """What a later segment repeats is no news."""
    assert list(make_state(event("alarm", text="x", again=True)).events) == []


def test_small_processes_end_silently() -> None:
    """Only the end of a process that held much is news."""
    state = make_state(event("process.gone", uid=1, rss_anon_bytes=1), event("process.gone", uid=2, rss_anon_bytes=GIB))
    assert [item["uid"] for item in state.events] == [2]


def test_cost() -> None:
    """The recorder's cost is its CPU time over ten seconds."""
    samples = [make_sample(second, recorder={0: {"cpu_us": second * 20_000}}) for second in range(12)]
    assert make_state(*samples).cost_ratio == pytest.approx(0.02)


def test_growth_of_a_role() -> None:
    """A role's slope is that of its last samples; before there are three there is none."""
    samples = [make_sample(second, process={1: held(second * 10 * MIB)}) for second in range(1, 40)]
    state, young = make_state(seen(1, "actor"), *samples), make_state(seen(1, "actor"), *samples[:2])
    assert (state.slope(state.roles["actor"]), young.slope(young.roles["actor"])) == (pytest.approx(10 * MIB), None)


def test_unknown_values() -> None:
    """Where the kernel shows nothing there is nothing, and nothing fails."""
    state = make_state(
        seen(1, "actor"), known(1, "node"), make_sample(1.0, process={1: {}}, limit={1: {}}, host={0: {}}, gpu={0: {}})
    )
    assert (state.roles["actor"].anon_bytes, state.limits[1].used_bytes, state.host["total_bytes"]) == (0, 0, None)
    assert "GPU 0 unknown" in draw(state)


def draw(
    state: State,
    width: int = 80,
    height: int = 24,
    *,
    title: str = "train_ppo",
    logs: Sequence[str] = (),
    folder: str = "doctor-runs/x",
    terminal: bool = False,
    language: str = "en",
    keys: str | None = None,
) -> str:
    """The view as it is written to a terminal, or to a file."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=terminal,
        highlight=False,
        emoji=False,
        markup=False,
        color_system="256" if terminal else None,
    )
    view = View(state, title, folder, list(logs), load_language(language))
    view.has_keys = keys is not None
    for key in keys or "":
        view.press(key)
    console.print(view)
    return out.getvalue()


@SIZES
@pytest.mark.parametrize("language", ["en", "zh"])
def test_keys(width: int, height: int, language: str) -> None:
    """`p` shows the processes that there is room for, `g` those that grow most first; each again takes it back."""
    samples = [
        make_sample(
            float(at), process={1: held(4 * GIB), 2: held(GIB + at * 16 * MIB), 3: held(2 * GIB), 4: held(3 * GIB)}
        )
        for at in range(3, 63)
    ]
    run = make_run(*samples)
    shown = {keys: draw(run, width, height, keys=keys, language=language) for keys in ("", "p", "pg", "ppgg", "x")}
    assert shown[""] == shown["ppgg"] == shown["x"]
    for keys, first in {"p": "101", "pg": "102"}.items():
        lines = shown[keys].splitlines()
        assert len(lines) <= height and "critic" not in shown[keys]
        pids = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in ("101", "102", "103", "104")]
        assert pids[:1] == [first] and len(pids) == 4


def crowd(gpus: int = 16) -> State:
    """A run with more of everything than any terminal shows."""
    names = [f"role number {number} with a long name" for number in range(60)]
    return make_state(
        *[seen(number, name) for number, name in enumerate(names)],
        *[known(number, "gpu", str(number)) for number in range(gpus)],
        known(90, "cgroup", "/" + "deep/" * 60),
        known(91, "node"),
        known(92, "ray"),
        known(93, "shm"),
        phase(1, "weight_sync", step=123456),
        make_sample(
            2.0,
            process={
                number: {**held(GIB * number, GIB), "locked_bytes": GIB, "pinned_bytes": GIB} for number in range(60)
            },
            limit={
                **{n: limit_row(GIB) for n in range(gpus)},
                **{n: limit_row(9 * GIB, 1e6 + n) for n in range(90, 94)},
            },
            gpu={n: {"total_bytes": 144 * GIB, "used_bytes": 100 * GIB, "busy_ratio": 990_000} for n in range(gpus)},
            host={
                0: {"shmem_bytes": 9 * GIB, "shm_used_bytes": GIB, "shm_unlinked_bytes": GIB, "shm_orphaned_bytes": GIB}
            },
            recorder={0: {"cpu_us": 1, "rss_bytes": 30 * MIB}},
        ),
        *[event("alarm", second, text="container limit will be full soon " * 9) for second in range(70)],
    )


def sizes(text: str) -> tuple[int, int]:
    """Length of the longest line, and how many lines there are."""
    return max(len(line) for line in text.splitlines()), len(text.splitlines())


@SIZES
@pytest.mark.parametrize("state", [State(), make_run(), crowd()], ids=["empty", "run", "crowd"])
def test_it_fits(width: int, height: int, state: State) -> None:
    """The view is never wider or higher than the terminal, whatever there is to show."""
    longest, count = sizes(draw(state, width, height, title="t" * 200, logs=["line " * 90] * 90, folder="/f" * 200))
    assert (longest <= width, count <= height) == (True, True), (longest, count)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_many_instances_fit(width: int, height: int) -> None:
    """The 56 MIG instances of a node do not make the view too high either."""
    assert sizes(draw(crowd(56), width, height))[1] <= height


@SIZES
def test_wide_characters(width: int, height: int) -> None:
    """Characters that take two columns do not make a line too long."""
    state = make_run(event("alarm", text="満" * 300))
    text = draw(state, width, height, title="列" * 90, logs=["語" * 300] * 60)
    wide = [line for line in text.splitlines() if len(line) + len(re.findall(r"[満列語]", line)) > width]
    assert wide == []


@pytest.mark.parametrize("language", languages())
@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("make", [make_run, crowd, State], ids=["run", "crowd", "empty"])
def test_columns(make: Callable[[], State], width: int, language: str) -> None:
    """In no language is a line wider than the terminal, by columns; each role has its name, its number and its memory."""
    state = make()
    text = draw(state, width, 30, title="训练" * 30, logs=["损失 " * 60], folder="/训练" * 40, language=language)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    words = load_language(language)
    for role in state.by_size()[:3] if make is make_run else ():
        row = re.compile(rf"^{re.escape(words(say_word(role.name)))} +{role.count} +[0-9.]+ (?:GiB|MiB)", re.MULTILINE)
        assert row.search(text), (role.name, text)
    if make is make_run:
        assert words(say_limit("cgroup")) in text and "8.00 GiB" in text and "10.0 GiB" in text


def test_another_language() -> None:
    """What the view says of itself is translated; names and lines of the job's output stay."""
    text = draw(
        make_run(seen(9, "my own role"), make_sample(3.0, process={9: held(GIB)})), logs=["损失 loss"], language="zh"
    )
    parts = ["角色", "容器上限", "第 7 步", "my own role", "损失 loss", "运行继续"]
    assert [part for part in parts if part not in text] == []
    assert not re.search("memory|limit|waiting|leaves", text)
    assert load_language("zh")(say_line(make_run()))[9:].startswith(
        "第 7 步 rollout：容器上限 80% / 10.0 GiB；约 1 min 30 s 后用尽"
    )


def test_stored_sentences() -> None:
    """An event says in any language what it says in English; the text alone counts where a message is not there or lies."""
    says = say("{limit} is {full:.0%} full", limit=say_limit("cgroup"), full=0.97)
    new = {**event("alarm"), **said({R.text: says})}
    assert json.loads(json.dumps(new)) == new and new["text"] == "container limit is 97% full"
    assert message_of(new, R.text) == says
    old = event("alarm", text="container limit is 97% full")
    assert message_of(old, R.text) == quoted("container limit is 97% full")
    assert message_of(event("alarm"), R.text) == NOTHING


def test_redacted_sentences() -> None:
    """A bundle's redactor reaches the stored arguments, too, and what is left still says what the text says."""
    fields = {R.what: say("recorder on {node}", node="10.1.2.3"), R.why: quoted("alice@corp.example refused")}
    item = Redactor().value({**event("gap"), **said(fields)})
    assert not re.search("alice|10[.]1", json.dumps(item))
    assert [message_of(item, name).id for name in fields] == ["recorder on {node}", "{text}"]
    assert [str(message_of(item, name)) for name in fields] == [item[name] for name in fields]


@pytest.mark.parametrize(
    "messages",
    [
        "x",
        {"text": "x"},
        {"text": {"id": 3}},
        {"text": {"id": "x", "arguments": [1]}},
        {"text": {"id": "{n:999999999}", "arguments": {"n": 1}}},
        {"text": {"id": "{n:d}", "arguments": {"n": 1.5}}},
        {"text": {"id": "{at:time}", "arguments": {"at": 1e300}}},
        {"text": {"id": "another text"}},
        {
            "text": functools.reduce(
                lambda inner, _: {"id": "{a}" * 99, "arguments": {"a": inner}}, range(8), {"id": "x"}
            )
        },
        {"text": functools.reduce(lambda inner, _: {"id": "{a}", "arguments": {"a": inner}}, range(500), {"id": "x"})},
        {"text": {"id": "{a}", "arguments": {"a": functools.reduce(lambda inner, _: [inner], range(500), "x")}}},
    ],
    ids=range(11),
)
def test_damaged_sentences(messages: Any) -> None:
    """A message in a trace that is damaged, or made by someone, is no error and costs nothing: its text is shown."""
    item = event("alarm", text="full", messages=messages)
    assert message_of(item, R.text) == quoted("full")
    assert str(say_event(item)[0]).endswith("alarm: full")


@SIZES
def test_what_is_shown(width: int, height: int) -> None:
    """The view names run, phase, limit, forecast, roles with their memory, and how to leave it."""
    text = draw(make_run(), width, height, logs=["step:7 - loss 0.1"])
    parts = [
        "rlhfdoctor train_ppo",
        "step 7 rollout",
        "container limit",
        " 80%  8.00 GiB of 10.0 GiB",
        "full in about 1 min 30 s, +60.0 MiB a minute over 2 min 00 s",
        "node memory 31% of 64.0 GiB",
        "actor",
        "4.00 GiB",
        "critic",
        "3.00 GiB",
        "other",
        "shmem without files 2.00 GiB",
        "/dev/shm 1.00 GiB",
        "step:7 - loss 0.1",
        "Ctrl-C leaves the view",
        "doctor-runs/x",
    ]
    assert [part for part in parts if part not in text] == []


def test_order_of_roles() -> None:
    """The role that holds most stands first."""
    rows = [
        line.split()[0]
        for line in draw(make_run()).splitlines()
        if line.split()[:1] and line.split()[0] in ("actor", "critic", "other")
    ]
    assert rows == ["actor", "critic", "other"]


def test_roles_that_do_not_fit() -> None:
    """Roles for which there is no room are added up in one line."""
    assert re.search(r"(\d+) more\s+\1 ", draw(crowd(), 80, 24)) is not None


def test_before_the_first_sample() -> None:
    """Before there is a sample the view says that it waits."""
    assert ("waiting for the first sample" in draw(State()), str(say_line(State()))[9:]) == (True, "recording")


def test_silence() -> None:
    """A recorder that takes no samples any more is said in the head."""
    assert "no sample for" in draw(make_run()).splitlines()[0]


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(
            80,
        ),
        120,
    ],
)
def test_disk_that_takes_nothing(width: int) -> None:
    """A disk that takes nothing is said in the head."""
    state = make_run(make_sample(3.0, recorder={0: {"kept_count": 5, "rss_bytes": 1}}))
    assert "recording to memory" in draw(state, width).splitlines()[0]


@pytest.mark.parametrize("terminal", [False, True])
def test_control_characters(terminal: bool) -> None:
    """Names, log lines and texts of events never reach the terminal with their control characters."""
    state = make_run(
        seen(9, NASTY, NASTY),
        known(5, "gpu", "5"),
        event("alarm", text=NASTY),
        event("gap", what=NASTY, why=NASTY),
        event("node.lost", node=NASTY, why=NASTY),
        make_sample(3.0, process={9: held(GIB)}, limit={5: limit_row(GIB, 5.0)}),
    )
    text = draw(state, title=NASTY, logs=[NASTY] * 3, terminal=terminal)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\x1b[31mred", "COLOUR OF A NAME") if terminal else text)
    assert (re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", plain), "COLOUR OF A NAME" in plain) == ([], False)


@pytest.mark.parametrize(
    "item", [event("mark", step=1, phase=NASTY), event("mark", step=NASTY, phase="rollout")], ids=["phase", "step"]
)
def test_control_characters_of_a_mark(item: dict[str, Any]) -> None:
    """A trainer's mark cannot reach the terminal with control characters either."""
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", draw(make_run(item))) == []


def test_no_terminal() -> None:
    """What is written to a file has no escape codes."""
    assert "\x1b" not in draw(crowd(), logs=["x"])


def test_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR there are no colours in a terminal either; without it there are."""
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7]|4[0-7]|48)(?:;\d+)*m")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = draw(make_run(), terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert (bool(colour.search(coloured)), bool(colour.search(draw(make_run(), terminal=True)))) == (True, False)


def test_line() -> None:
    """The state as one line: where the run is, the limit that binds, the forecast, who holds most."""
    expected = (
        "step 7 rollout: container limit 80% of 10.0 GiB; full in about 1 min 30 s, +60.0 MiB a minute over 2 min 00 s; "
        "actor 5.00 GiB, critic 5.00 GiB, other 1.00 MiB"
    )
    assert str(say_line(make_run()))[9:] == expected


def test_line_without_growth() -> None:
    """Without a forecast the line has none; control characters are taken out."""
    state = make_state(
        seen(1, NASTY), known(1, "shm"), make_sample(1.0, process={1: held(GIB)}, limit={1: limit_row(GIB)})
    )
    assert clean(str(say_line(state)))[9:] == "/dev/shm 10% of 10.0 GiB; ared5mb 1.00 GiB"


@pytest.mark.parametrize(
    ("low_s", "high_s", "steps", "expected"),
    [
        (100.0, 105.0, 0, "full in about 1 min 40 s, +60.0 MiB a minute over 2 min 00 s"),
        (50.0, 200.0, 9, "full in about 1 min 40 s (50 s to 3 min 20 s), +10.0 MiB a step over 9 steps"),
        (None, None, 0, "full in about 1 min 40 s, +60.0 MiB a minute over 2 min 00 s"),
    ],
)
def test_forecast(low_s: float | None, high_s: float | None, steps: int, expected: str) -> None:
    """A forecast is shown with what it rests on, and with its bounds where they are wide."""
    state = make_run()
    limit = state.limits[2]
    limit.left_s, limit.low_s, limit.high_s = 100.0, low_s, high_s
    limit.steps_count, limit.rise_bytes = steps, 10.0 * MIB
    assert str(say_left(limit)) == str(say_outlook(state, limit)) == expected


def test_trace_of_an_older_recorder() -> None:
    """It does not say what its forecasts rest on."""
    columns = {**TABLES, "limit": TABLES["limit"][:6]}
    state = State()
    state.take(known(1, "cgroup"), columns)
    row = [[8 * GIB], [10 * GIB], [90_000], [80_000], [100_000], [MIB]]
    state.take(Sample(1, 10**18, 10**9, {"limit": ([1], row)}), columns)
    assert str(say_left(state.limits[1])) == "full in about 1 min 30 s (1 min 20 s to 1 min 40 s), +60.0 MiB a minute"


@pytest.mark.parametrize(
    ("second", "used", "hangs_s", "expected"),
    [
        (9.0, 5 * GIB, 0, "measuring..."),
        (90.0, 5 * GIB, 0, "no steady growth towards a limit"),
        (90.0, 10 * GIB - MIB, 0, "full: the kernel may kill at any moment"),
        (90.0, 10 * GIB - MIB, 55_000, "the run hangs at this limit, for 55 s so far"),
    ],
)
def test_outlook(second: float, used: int, hangs_s: int, expected: str) -> None:
    """Without a forecast the view says what it knows; once the run is over it says nothing of what is to come."""
    row = {**limit_row(used), "hangs_s": hangs_s}
    state = make_state(known(1, "cgroup"), *(make_sample(at, limit={1: row}) for at in (1.0, second)))
    assert str(say_outlook(state, state.limits[1])) == expected
    assert expected in draw(state)
    state.take(event("job.exited", code=-9), TABLES)
    assert (say_outlook(state, state.limits[1]), "goes on" in draw(state)) == (NOTHING, False)


@pytest.mark.parametrize(
    ("host", "row", "expected"),
    [
        ({}, {}, ""),
        ({}, {"rss_shmem_bytes": GIB}, "largest shmem 1.00 GiB"),
        ({}, {"locked_bytes": GIB, "pinned_bytes": MIB * 512}, "mlocked or pinned 1.50 GiB"),
        ({"shm_used_bytes": GIB, "shm_unlinked_bytes": 0}, {}, "/dev/shm 1.00 GiB"),
        (
            {"shm_used_bytes": 2 * GIB, "shm_unlinked_bytes": GIB, "shm_orphaned_bytes": MIB},
            {},
            "/dev/shm 2.00 GiB, 1.00 GiB of it unlinked, 1.00 MiB orphaned",
        ),
        (
            {"shmem_bytes": 3 * GIB, "shm_used_bytes": GIB, "shm_unlinked_bytes": 0},
            {},
            "shmem without files 2.00 GiB · /dev/shm 1.00 GiB",
        ),
    ],
)
def test_shared(host: Row, row: Row, expected: str) -> None:
    """Shared and page-locked memory in one line, as far as it is known."""
    parts = say_shared(make_state(make_sample(1.0, host={0: host}, process={1: row})))
    assert " · ".join(map(str, parts)) == expected


EVENTS: list[tuple[dict[str, Any], str, bool]] = [
    (event("alarm", text="GPU 3 is full"), "alarm: GPU 3 is full", True),
    (event("oom_kill", count=2, level="node"), "the kernel killed 2 at the node", True),
    (event("oom_kill", count=1, level="/sys/fs/cgroup/job"), "the kernel killed 1 at job", True),
    (event("kernel.line", text="2026-01-01T00:00:00,000000+00:00 Killed process 7"), "Killed process 7", True),
    (event("kernel.other", pid=7), "the kernel killed a process of another job (pid 7)", False),
    (event("cgroup.oom"), "out of memory in the cgroup", True),
    (event("job.exited", code=0), "the command ended: exit status 0", False),
    (event("job.exited", code=-9), "the command ended: killed by SIGKILL", True),
    (event("process.exited", pid=7, code=3), "pid 7 ended: exit status 3", True),
    (
        event("process.snapshot", pid=7, why="out of memory", lines=["a.py:7 f"], sizes=[GIB]),
        "pid 7 ran out of GPU memory; a.py:7 f holds most of it, 1.00 GiB",
        True,
    ),
    (
        event("process.snapshot", pid=7, why="full", lines=["a.py:7 f"], sizes=[GIB]),
        "the GPU of pid 7 is nearly full; a.py:7 f holds most of it, 1.00 GiB",
        True,
    ),
    (
        event("process.gone", pid=7, role="actor", name="x", rss_anon_bytes=GIB),
        "actor pid 7 is gone; it held 1.00 GiB anon",
        True,
    ),
    (event("process.gone", pid=7, role=None, name="x", rss_anon_bytes=None), "x pid 7 is gone; it held 0 B anon", True),
    (event("gap", what="GPUs", why="no driver"), "not available: GPUs: no driver", False),
    (event("store.recovered", kept_count=5), "the disk takes writes again; 5 frames were kept in memory", False),
    (event("recorder.end", why="the command ended"), "recording ended: the command ended", False),
    (event("ray.node", pid=7, address="10.0.0.4"), "Ray node 10.0.0.4 (raylet 7)", False),
    (event("node.lost", node="n2", why="it is dead"), "node n2 is lost: it is dead", True),
]


@pytest.mark.parametrize(
    ("item", "expected", "bad"), EVENTS, ids=lambda value: value["kind"] if isinstance(value, dict) else None
)
def test_event(item: dict[str, Any], expected: str, bad: bool) -> None:
    """Each kind of event has its words behind the time, and whether it is bad news."""
    says, told_bad = say_event(item)
    text = str(says)
    assert (re.fullmatch(r"\d\d:\d\d:\d\d", text[:8]) is not None, text[9:], told_bad) == (True, expected, bad)


@pytest.mark.parametrize("kind", ["mark", "process.seen", "of the future"])
def test_event_without_words(kind: str) -> None:
    """What is no news is not said."""
    assert [str(part) for part in say_event(event(kind))] == ["", "False"]


def test_every_kept_event_is_tested() -> None:
    """Every kind that the state keeps is among those above, but for three."""
    assert set(_SHOWN) - {item["kind"] for item, _, _ in EVENTS} == {"store.dropped", "node.back", "metrics.serving"}


@pytest.mark.parametrize(
    "item",
    [event("store.dropped", segments_count=2), event("node.back", node="n2"), event("metrics.serving", port=9)],
    ids=lambda item: item["kind"],
)
def test_every_kept_event_has_words(item: dict[str, Any]) -> None:
    """What the state keeps as news is said."""
    assert str(say_event(item)[0]) != ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, "exit status 0"), (137, "exit status 137"), (-15, "killed by SIGTERM"), (-35, "killed by signal 35")],
)
def test_exit(code: int, expected: str) -> None:
    """An exit code in words."""
    assert str(say_exit(code)) == expected


@pytest.mark.parametrize(
    ("values", "width", "expected"), [([], 5, ""), ([0, 0], 5, "  "), ([8, 4, 0], 2, "█ "), ([1, 8], 5, "▁█")]
)
def test_sparkline(values: list[int], width: int, expected: str) -> None:
    """The last values as bars."""
    assert sparkline(values, width) == expected
