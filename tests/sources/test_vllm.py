"""vLLM's metrics: pages of V0 and V1, several engines, damaged pages, servers that answer and that do not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlhfdoctor.sources.vllm import EngineLoad, find_port, parse_metrics, read_metrics

V0 = """\
# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="our/model-7b"} 3.0
vllm:num_requests_swapped{model_name="our/model-7b"} 0.0
vllm:num_requests_waiting{model_name="our/model-7b"} 12.0
vllm:gpu_cache_usage_perc{model_name="our/model-7b"} 0.75
vllm:cpu_cache_usage_perc{model_name="our/model-7b"} 0.0
vllm:num_preemptions_total{model_name="our/model-7b"} 4.0
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="our/model-7b"} 0.0
"""
V1 = """\
# HELP python_gc_objects_collected_total Objects collected during gc
python_gc_objects_collected_total{generation="0"} 9561.0
process_resident_memory_bytes 1.234e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="our/model-7b"} 2.0
vllm:num_requests_waiting{engine="0",model_name="our/model-7b"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="our/model-7b"} 0.0625
vllm:num_preemptions_total{engine="0",model_name="our/model-7b"} 1.0e+01
vllm:num_preemptions_created{engine="0",model_name="our/model-7b"} 1.8e+09
"""
TWO = V1 + V1.replace('engine="0"', 'engine="1"').replace("0.0625", "0.5")
PAGES = {
    "V0": (V0, EngineLoad(running_count=3, waiting_count=12, cache_ratio=0.75, preempted_count=4)),
    "V1": (V1, EngineLoad(running_count=2, waiting_count=1, cache_ratio=0.0625, preempted_count=10)),
    "both names of the cache": (
        V1 + V0.splitlines()[5],
        EngineLoad(running_count=2, waiting_count=1, cache_ratio=0.0625, preempted_count=10),
    ),
    "two engines": (TWO, EngineLoad(running_count=4, waiting_count=2, cache_ratio=0.5, preempted_count=20)),
    "idle": (
        "vllm:num_requests_running 0.0\nvllm:kv_cache_usage_perc 0.0\n",
        EngineLoad(running_count=0, waiting_count=None, cache_ratio=0.0, preempted_count=None),
    ),
    "another of its metrics": (
        "vllm:lora_requests_info 1.0\n",
        EngineLoad(running_count=None, waiting_count=None, cache_ratio=None, preempted_count=None),
    ),
    "cut off": (
        V0[: V0.index("0.75")],
        EngineLoad(running_count=3, waiting_count=12, cache_ratio=None, preempted_count=None),
    ),
}


@pytest.mark.parametrize(("text", "expected"), PAGES.values(), ids=PAGES)
def test_page(text: str, expected: EngineLoad) -> None:
    """Requests are summed over engines, the fullest cache counts, and what a version does not say is None."""
    assert expected == parse_metrics(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# HELP vllm:num_requests_running x\n",
        "ray_object_store_memory 5.0\n",
        "<html>vllm:num_requests_running</html>",
        "\0\ufffd",
        "xvllm:num_requests_running 3.0\n",
    ],
    ids=["empty", "blank line", "comments", "another program", "HTML", "garbage", "name within a name"],
)
def test_no_page(text: str) -> None:
    """A page without one metric of vLLM's is none of its pages."""
    assert parse_metrics(text) is None


@pytest.mark.parametrize("value", ["1e308", "-1", "1e999", "9007199254740993e9"])
def test_number_that_no_engine_has(value: str) -> None:
    """Such a figure is unknown; that of another engine on the page counts."""
    name = "vllm:num_requests_running"
    assert parse_metrics(f"{name} {value}\n") is None
    assert parse_metrics(f'{name} {value}\n{name}{{model="b"}} 3.0\n') == parse_metrics(f"{name} 3\n")
    assert (parse_metrics(f"{name} 9e15\n" * 99) or V1).running_count == 2**53


def test_damaged_number() -> None:
    """A number that cannot be read is unknown, not zero."""
    expected = EngineLoad(running_count=3, waiting_count=None, cache_ratio=0.75, preempted_count=4)
    assert expected == parse_metrics(V0.replace("12.0", "1-2"))


@pytest.mark.parametrize("value", ["NaN", "1e999"])
@pytest.mark.parametrize("name", ["num_requests_running", "kv_cache_usage_perc"])
def test_value_that_is_no_number(name: str, value: str) -> None:
    """A metric that is NaN or infinite says nothing."""
    expected = EngineLoad(running_count=None, waiting_count=1, cache_ratio=None, preempted_count=None)
    assert expected == parse_metrics(f"vllm:{name} {value}\nvllm:num_requests_waiting 1.0\n")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m vllm.entrypoints.openai.api_server --model m --port 9000", 9000),
        ("/x/bin/python /x/bin/vllm serve our/model-7b --port=8100 --tensor-parallel-size 4", 8100),
        ("vllm serve our/model-7b", 8000),
        ("vllm serve m --port-range 5", 8000),
        ("vllm bench serve --port 9000", None),
        ("python train.py --port 9000", None),
        ("", None),
    ],
)
def test_port(command: str, expected: int | None) -> None:
    """A server's port is in its command line, or it is 8000; other programs have none."""
    assert expected == find_port(command)


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Serves a page at /metrics from a thread; gives the port."""
    servers: list[ThreadingHTTPServer] = []

    def start(body: bytes, status: int = 200) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/metrics" else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (V1.encode(), 200, PAGES["V1"][1]),
        (V1.encode(), 500, None),
        (V1.encode(), 404, None),
        (b"", 200, None),
        (b"\xff\xfe\0", 200, None),
        (b"\xff\n" + V0.encode(), 200, PAGES["V0"][1]),
    ],
    ids=["good", "error", "no page", "empty", "garbage", "no text before it"],
)
def test_server(serve: Callable[..., int], body: bytes, status: int, expected: EngineLoad | None) -> None:
    """A real server is asked for its page; errors and other pages are None."""
    assert expected == read_metrics("127.0.0.1", serve(body, status))


def test_no_server(closed_port: int) -> None:
    """Where nobody listens there is no load."""
    assert read_metrics("127.0.0.1", closed_port) is None


def test_server_that_does_not_answer() -> None:
    """A server that takes the connection and says nothing is given up."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert read_metrics("127.0.0.1", listener.getsockname()[1], timeout_s=0.05) is None


def test_server_that_is_no_http() -> None:
    """A port that speaks something else is None."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=lambda: listener.accept()[0].sendall(b"SSH-2.0-x\r\n" * 3), daemon=True)
        thread.start()
        assert read_metrics("127.0.0.1", listener.getsockname()[1]) is None
        thread.join()
