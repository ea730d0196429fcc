"""Addresses: e-mail, IPv4, IPv6, MAC, by their own form. A token is an address, too, of a net for documentation."""

from __future__ import annotations

import re

EMAIL = re.compile(
    r"(?<![A-Za-z0-9_.+-])(?!git@)[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
IP4 = re.compile(
    r"[0-9](?<![0-9.][0-9])(?<![=<>!~]=[0-9])(?:(?<=2)5[0-5]|(?<=2)[0-4][0-9]|(?<=1)[0-9]{2}|[0-9]?)"
    r"(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}(?![0-9]|\.[0-9])"
)
"""It begins with a letter of a set, which is searched for fast."""
IP6 = re.compile(
    r"(?i)(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6})(?![\w:])"
)
MAC = re.compile(r"[0-9a-fA-F](?<![\w:-].)[0-9a-fA-F](?:(?::[0-9a-fA-F]{2}){5}|(?:-[0-9a-fA-F]{2}){5})(?![\w:-])")
IP6_SIGN = re.compile(r"::|:[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,4}:")
_VERSION = re.compile(
    r"(?i)(?:version|cu\d\d|cuda|cudnn|cublas|nccl|driver|nvidia-[\w-]{1,40})[\"']?[\s:@=]{0,4}[\"']?$"
)
_NOT_PRIVATE = re.compile(r"(?:0\.|127\.|255\.|224\.|169\.254\.169\.254)")
_NETS = ("192.0.2", "198.51.100", "203.0.113")
_IN_NETS = 254


def is_private(match: re.Match[str]) -> bool:
    """Whether an address is one of somewhere: no loopback, no version, no scope of C++."""
    found = match[0]
    if (
        _NOT_PRIVATE.match(found)
        or found.startswith("::")
        or ("-" not in found and ":" in found and not re.search(r"\d", found))
    ):
        return False
    if set(found.lower()) <= set("f:-") or set(found) <= set("0:-"):
        return False
    return _VERSION.search(match.string, max(match.start() - 48, 0), match.start()) is None


def token_of(found: str, number: int) -> str:
    """The address that stands for the one that was found `number`-th; its form is the same.

    >>> token_of("10.1.2.3", 0), token_of("fe80::1", 1), token_of("0a-1b-2c-3d-4e-5f", 2)
    ('192.0.2.1', '2001:db8::2', '02-00-00-00-00-03')
    """
    if MAC.fullmatch(found):
        return re.sub(r"(..)", rf"\1{found[2]}", f"02{number + 1:010x}")[:-1]
    if ":" in found:
        return f"2001:db8::{number + 1:x}"
    if number < len(_NETS) * _IN_NETS:
        return f"{_NETS[number // _IN_NETS]}.{number % _IN_NETS + 1}"
    return f"10.254.{number // 250 % 250}.{number % 250 + 1}"
