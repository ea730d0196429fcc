"""vLLM's /metrics in Prometheus text: how full the KV cache is, what runs, what waits.

    vllm:num_requests_running{model_name="m"} 3.0
    vllm:gpu_cache_usage_perc{model_name="m"} 0.75      (V0; a ratio although it says perc)
    vllm:kv_cache_usage_perc{model_name="m"} 0.75       (V1, vllm/v1/metrics/loggers.py)

Only a served engine (`vllm serve`) has the page; engines inside Ray actors do not.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_LINE = re.compile(r"vllm:([a-z_]{1,80})(?:\{[^}]{0,2000}\})? {1,8}([-+0-9.eE]{1,40})")
_PAGE_BYTES = 1 << 20
_LINE_LETTERS = 4096
_MOST = 2.0**53
"""Of a figure: no engine has more, and a trace holds whole numbers of 64 bits."""
_PORT = re.compile(r"--port[ =](\d{2,5})\b")
_SERVER = re.compile(r"vllm\.entrypoints|\bvllm serve\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """One engine's load at one moment. None: not reported by this version."""

    running_count: int | None
    waiting_count: int | None
    cache_ratio: float | None
    """Share of the KV cache that is in use."""
    preempted_count: int | None
    """Requests thrown out of a full cache since the start."""


def parse_metrics(text: str) -> EngineLoad | None:
    """The load, summed over the engines of the page; None if it is not a page of vLLM.

    >>> parse_metrics("vllm:num_requests_running{a=\\"b\\"} 2.0\\nvllm:kv_cache_usage_perc 0.5\\n")
    EngineLoad(running_count=2, waiting_count=None, cache_ratio=0.5, preempted_count=None)
    """
    found: dict[str, list[float]] = {}
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.rstrip("\r")) if line.startswith("vllm:") and len(line) < _LINE_LETTERS else None
        try:
            known = float(match[2]) if match is not None else math.nan
        except ValueError:
            continue
        if match is not None and 0 <= known <= _MOST:
            found.setdefault(match[1], []).append(known)
    if not found:
        return None

    def total(*names: str) -> int | None:
        values = next((found[name] for name in names if name in found), None)
        return None if values is None else int(min(sum(values), _MOST))

    cache = found.get("kv_cache_usage_perc") or found.get("gpu_cache_usage_perc")
    return EngineLoad(
        running_count=total("num_requests_running"),
        waiting_count=total("num_requests_waiting"),
        cache_ratio=max(cache) if cache else None,
        preempted_count=total("num_preemptions_total", "num_preemptions"),
    )


def find_port(command: str) -> int | None:
    """The port of a vLLM server by its command line; 8000 where it names none; None for other programs.

    >>> find_port("python -m vllm.entrypoints.openai.api_server --port 9000")
    9000
    >>> find_port("vllm serve m"), find_port("ls")
    (8000, None)
    """
    if not _SERVER.search(command):
        return None
    match = _PORT.search(command)
    return int(match[1]) if match else 8000


def read_metrics(host: str, port: int, timeout_s: float = 1.0) -> EngineLoad | None:
    """Asks a server; None where it does not answer in time."""
    import http.client

    from rlhfdoctor.sources.deadline import DeadlineConnection

    connection = DeadlineConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics")
        reply = connection.getresponse()
        return parse_metrics(reply.read(_PAGE_BYTES).decode("utf-8", "replace")) if reply.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
