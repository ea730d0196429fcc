"""What people are reported, by a command or over HTTP: one line, no secret, and nobody waits for it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.record import send
from rlhfdoctor.record.notices import VARIABLE, Notices, take_urls

TOKEN = "T0k3n5ecret"
apprise = pytest.mark.skipif(importlib.util.find_spec("apprise") is None, reason="apprise is not installed")


class Server:
    """An HTTP server on 127.0.0.1 that keeps what it is sent."""

    def __init__(self, status: int) -> None:
        self.requests: Queue[tuple[str, dict[str, Any]]] = Queue()
        told = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"ok")
                told.put((self.path, json.loads(body)))

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def one(self) -> tuple[str, dict[str, Any]]:
        """The next request."""
        return self.requests.get(timeout=30)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that answers with 200, or with the status that is given."""
    made = Server(getattr(request, "param", 200))
    yield made
    made.http.shutdown()
    made.http.server_close()


def watch(tmp_path: Path, script: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`doctor watch` on a shell script."""
    words = ["watch", "--no-view", "--out", str(tmp_path / "run"), *options, "--", "sh", "-c", script]
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", *words], env=environment, capture_output=True, text=True, timeout=60
    )


@apprise
def test_death(tmp_path: Path, server: Server) -> None:
    """A run that dies is reported in one line, and neither the job nor any file knows the URL."""
    url = f"json://{server.address}/hook/{TOKEN}"
    done = watch(tmp_path, "env; exit 3", "--notify", url, RLHFDOCTOR_NOTIFY=f"{url}/2")
    told = [server.one(), server.one()]
    assert {path for path, _ in told} == {f"/hook/{TOKEN}", f"/hook/{TOKEN}/2"}
    for _, body in told:
        assert body["title"] == "rlhfdoctor"
        assert "the run died after" in body["message"] and "(exit status 3)" in body["message"]
        assert "\n" not in body["message"]
    assert (done.returncode, TOKEN in done.stdout + done.stderr) == (3, False)
    kept = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []


@apprise
def test_good_end(tmp_path: Path, server: Server) -> None:
    """A run that ends well is not told."""
    assert watch(tmp_path, "exit 0", "--notify", f"json://{server.address}/x").returncode == 0
    with pytest.raises(Empty):
        server.requests.get_nowait()


@apprise
@pytest.mark.parametrize("server", [500], indirect=True)
def test_service_that_fails(tmp_path: Path, server: Server) -> None:
    """It changes nothing for the run; the recorder's log says so, without the URL."""
    url = f"json://{server.address}/{TOKEN}"
    log = tmp_path / "log"
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "rlhfdoctor.record.send", "text"],
            env={**os.environ, VARIABLE: f"{url} json://127.0.0.1:1/{TOKEN}"},
            stderr=file,
        )
    assert (done.returncode, log.read_text()) == (1, "doctor: --notify json://...: not sent\n" * 2)


@apprise
def test_secrets(server: Server) -> None:
    """A secret in the text is cut; a chat service in the way of Slack gets the same line."""
    notices = Notices(urls=[f"json://{server.address}/x"], run="train --api_key=abcd1234 (n1)")
    notices.send(quoted("password=hunter2-do-not-tell and more"))
    message = server.one()[1]["message"]
    assert "abcd1234" not in message and "hunter2" not in message and "train" in message


@apprise
@pytest.mark.parametrize(
    "url",
    [
        "slack://TabcdefGH/B123ABC78/abcdefghijklmnop12345678",
        "lark://abcd-1234",
        "dingtalk://a1b2c3d4",
        "wecombot://a1b2c3d4-1234",
        "mailto://user:pass@example.com",
        "bell",
    ],
)
def test_known_services(url: str) -> None:
    """The services of the help are known."""
    send.check([url])


@apprise
@pytest.mark.parametrize("url", [TOKEN, f"nosuch://{TOKEN}"])
def test_unknown_service(tmp_path: Path, url: str) -> None:
    """Another URL is refused before anything starts, and not repeated."""
    done = watch(tmp_path, "exit 0", "--notify", url)
    assert (done.returncode, TOKEN in done.stderr, "no such URL is known" in done.stderr) == (2, False, True)


def test_without_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package it is said how to get it; the bell needs none."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"rlhfdoctor\[notify\]"):
        send.check(["slack://x"])
    send.check(["bell"])


def test_urls_leave_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder takes them before it starts the job; the bell is not its."""
    monkeypatch.setenv(VARIABLE, " slack://a  bell\nlark://b ")
    assert take_urls() == ("slack://a", "lark://b")
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("code", "kills", "step", "expected"),
    [
        (-9, 1, 56, "the run died after 1 min 40 s (step 56, killed by SIGKILL, the kernel killed 1 process)"),
        (1, 0, None, "the run died after 1 min 40 s (exit status 1)"),
        (0, 2, None, "the run ended after 1 min 40 s (exit status 0, the kernel killed 2 processes)"),
        (None, 2, None, "the run ended after 1 min 40 s (the kernel killed 2 processes)"),
    ],
)
def test_words_of_a_death(tmp_path: Path, code: int | None, kills: int, step: int | None, expected: str) -> None:
    """How it ended, at which step, and what the kernel did; the user's command runs with it."""
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    Notices(command=f'echo "$RLHFDOCTOR_ALARM" > {fifo}').died(code, kills, 100.0, step)
    assert fifo.read_text() == f"{expected}\n"
