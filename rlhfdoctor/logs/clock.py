"""Time stamps: with or without year, zone or date.

A stamp without a zone is taken as UTC unless the recorder knows the node's; one without a year takes the year of the
other stamps of its file, else of the file's modification time. dmesg's seconds since boot give no wall time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo

_ISO = re.compile(
    r"(?P<Y>20\d\d)-(?P<m>[01]\d)-(?P<d>[0-3]\d)[T ](?P<H>[0-2]\d):(?P<M>[0-5]\d):(?P<S>[0-6]\d)"
    r"(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_CTIME = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<b>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) "
    r"(?P<Y>20\d\d)"
)
_CHINESE = re.compile(
    r"[一二三四五六日] +(?P<m>1[0-2]|[1-9])月 +(?P<d>\d{1,2}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d) (?P<Y>20\d\d)"
)
"""`dmesg -T` under LANG=zh_CN."""
_CHINESE_DATE = re.compile(
    r"(?P<Y>20\d\d)年 ?(?P<m>[01]?\d)月 ?(?P<d>[0-3]?\d)日 ?(?:(?:星期|周)[一二三四五六日] ?)?"
    r"(?P<H>[0-2]?\d)[:：时](?P<M>[0-5]\d)[:：分](?P<S>[0-6]\d)"
)
"""`date` under LANG=zh_CN, and what people write."""
_SYSLOG = re.compile(
    r"^(?P<b>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<d>\d{1,2}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)\b"
)
_VLLM = re.compile(r"\b(?:INFO|ERROR|WARNING|DEBUG) (?P<m>[01]\d)-(?P<d>[0-3]\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)\b")
_GLOG = re.compile(r"\b[IWEF](?P<m>1[0-2]|[1-9]|0[1-9])(?P<d>[0-3]\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)\.(?P<f>\d+)")
_US = re.compile(r"\b(?P<m>[01]\d)/(?P<d>[0-3]\d)/(?P<Y>20\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)")
_CLOCK = re.compile(r"\d[:：时]\d\d[:：分]\d\d|received at time=")
"""What each of these has; most lines have none of it."""
_UNIX = re.compile(r"received at time=(1[0-9]{9})\b")
_MONTHS = {
    name: i + 1
    for i, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
}


def read_time(text: str, year: int | None = None, zone: tzinfo = timezone.utc) -> float | None:
    """Unix seconds of the first stamp in a line, or None.

    >>> read_time("[2025-04-02 15:02:00,117 E 1 1] (raylet) node_manager.cc:3069: ...")
    1743606120.117
    >>> read_time("INFO 04-02 15:02:00 worker.py:133]", year=2025)
    1743606120.0
    >>> read_time("2025-04-02 15:02:00", zone=timezone(timedelta(hours=8)))
    1743577320.0
    >>> read_time("INFO 04-02 15:02:00 worker.py:133]") is None
    True
    >>> read_time("[三 4月  2 15:02:00 2025] oom-kill:"), read_time("2025年 04月 02日 星期三 15:02:00 UTC")
    (1743606120.0, 1743606120.0)
    """
    head = text[:400]
    if _CLOCK.search(head) is None:
        return None
    unix = _UNIX.search(head)
    if unix is not None:
        return float(unix[1])
    for regex in (_ISO, _CTIME, _US, _SYSLOG, _VLLM, _GLOG, _CHINESE, _CHINESE_DATE):
        match = regex.search(head)
        if match is None:
            continue
        part = match.groupdict()
        full = part.get("Y") or year
        if full is None:
            return None
        month = _MONTHS.get(part["b"] or "") if "b" in part else int(part["m"] or 0)
        if not month:
            continue
        try:
            stamp = datetime(
                int(full),
                month,
                int(part["d"] or 0),
                int(part["H"] or 0),
                int(part["M"] or 0),
                min(int(part["S"] or 0), 59),
                tzinfo=_zone(part.get("z"), zone),
            )
        except ValueError:
            continue
        fraction = part.get("f")
        return stamp.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    return None


def _zone(text: str | None, default: tzinfo) -> tzinfo:
    if not text:
        return default
    if text == "Z":
        return timezone.utc
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))
