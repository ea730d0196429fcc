"""Where names of machines stand: hosts, parts, ids."""

from __future__ import annotations

from rlhfdoctor.privacy.form import Label

_IS = r"\\{0,4}[\"']?[ \t]{0,40}[=:：][ \t]{0,40}\\{0,4}[\"']?"
_START = r"(?:^|(?<=[\s\"'>(=,;]))"
_CJK = r"\u3400-\u9fff\uac00-\ud7af\u3040-\u30ff"
_HOST = r"[A-Za-z0-9][\w.-]{1,62}"
_NAME = r"(?=[\w.-]{0,62}[A-Za-z])[A-Za-z0-9][\w.-]{1,62}"
"""One with a letter in it, which no IP address has; of that is taken care elsewhere."""
_HEX_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
LABELS = (
    # machines
    Label(
        "host",
        "host node master endpoint",
        r"(?i)(?<![A-Za-z])(?:host(?:name)?|node_?(?:name|list)?|batchhost|SLURMD_NODENAME|master[_-]addr"
        r"|rdzv[_-]endpoint)"
        r"[\"']?\s{0,4}[=: ]\s{0,4}[\"']?([A-Za-z][\w.-]{3,62})",
    ),
    Label("host", "host_", rf"(?m)(?<![\w.-])host[ \t]{{2,16}}: ({_NAME})[ \t]*$"),
    Label("host", "***_ signal: [_0]", rf"{_START}\[({_NAME}):\d{{2,10}}\] (?:\*\*\*|Signal|\[)", in_place=True),
    Label("host", "to_[", rf"\bto \[({_NAME})\]:\d{{2,5}}\b", in_place=True),
    Label("host", "ip=", rf"\bpid=\d{{1,10}}, ip=({_NAME})\)", in_place=True),
    Label("host", "nodelist", rf"(?i)\w{{0,30}}nodelist=({_HOST}?)(?=\[)", in_place=True),
    Label("host", "主机 节点 机器 服务器", rf"(?:主机名?|节点|机器名?|服务器)\s{{0,4}}{_IS}({_HOST})", in_place=True),
    Label(
        "host",
        "kernel: systemd dockerd kubelet slurmd ]:",
        rf"(?m){_START}(?:[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} [\d:]{{8}}"
        rf"|20\d\d-\d\d-\d\dT[\d:.,+-]{{8,24}}Z?) ([\w.-]{{1,63}}) "
        r"(?:kernel|systemd|dockerd|kubelet|slurmd|[\w-]{1,40}\[\d{1,10}\]):",
    ),
    Label(
        "host",
        "nccl",
        rf"(?m)(?:{_START}|^\([^)\n]{{0,80}}\) ?)([A-Za-z][\w.-]{{1,62}}):\d{{1,10}}:\d{{1,10}} \[\d{{1,4}}\]"
        rf" NCCL",
    ),
    Label(
        "host",
        "srun: cancelled linux",
        rf"(?m)\bsrun: error: ([\w.-]{{2,63}}):|\bON ([\w.-]{{2,63}}) CANCELLED"
        rf"|{_START}Linux ([\w.-]{{2,63}}) \d",
    ),
    Label(
        "host",
        "nodelist(reason)",
        rf"\d:\d\d[ \t]{{1,40}}\d{{1,6}}[ \t]{{1,40}}({_HOST}?)(?=\[|[ \t\"'\\]|$)",
        100,
        in_place=True,
    ),
    Label(
        "host",
        "mpirun mpiexec horovodrun",
        r"(?<=[ ,=])([A-Za-z][\w.-]{2,62}):\d{1,3}(?=[,\s\"'\\]|$)",
        in_place=True,
    ),
    Label("host", "slots=", rf"{_START}([A-Za-z][\w.-]{{1,62}})[ \t]{{1,20}}(?:max_)?slots=\d", in_place=True),
    Label("host", "assigned", r"\bassigned [a-z0-9-]{1,63}/([a-z0-9][\w.-]{2,252})", in_place=True),
    Label("host", "@o2ib @tcp", rf"(?<![\w.-])({_HOST})@(?:o2ib|tcp)\d{{0,4}}\b", in_place=True),
    Label("host", "ip-", r"\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b"),
    Label("host", "@", rf"(?m)^\(?[\w.-]{{0,40}}\)? ?\[?[a-z_{_CJK}][\w.-]{{1,31}}@([\w.-]{{1,63}})(?=[:\s])"),
    Label(
        "host",
        "@",
        rf"{_START}\[?[a-z_{_CJK}][\w.-]{{1,31}}@([\w.-]{{2,63}})(?=:[~/][^\s$#]{{0,200}}[$#]"
        rf"|\s[^\s\]]{{1,100}}\][$#])",
    ),
    Label(
        "host",
        "ssh scp sftp rsync",
        r"\b(?:ssh|scp|sftp|rsync)\b[^\n]{0,80}?\s[A-Za-z_][\w.-]{1,31}@([\w.-]{2,63})",
    ),
    Label("host", "mount", rf"\bmount\b[^\n]{{0,80}}?\s({_HOST}):/", in_place=True),
    Label(
        "host",
        ".internal .local .lan .corp .cluster .intra",
        r"(?<![\w.-])([a-z0-9][a-z0-9.-]{0,250}\.(?:internal|local|lan|corp|cluster|intra))\b",
    ),
    Label(
        "host",
        "://",
        r"(?i)(?<=://)(?:[^\s/@\"'<>]{1,300}@)?([a-z0-9](?:[\w.-]{0,250}[a-z0-9])?)(?=[:/?#\s\"'<>),;\]\\]|$)",
        in_place=True,
    ),
    Label("host", "git@", r"\bgit@([\w.-]{2,200}):", in_place=True),
    Label(
        "host",
        "image docker registry podman",
        r"(?i)(?:image|pull|push|run|from|registry)[:=\s\"']{1,6}((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24})(?=(?"
        r"::\d{1,5})?/)",
        in_place=True,
    ),
    Label(
        "group",
        "image docker registry podman",
        r"(?i)(?:image|pull|push|run|from|registry)[:=\s\"']{1,6}(?!(?:ghcr|docker|nvcr"
        r"|quay)\.io)(?:(?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24}|host-\d{1,6})(?::\d{1,5})?/([\w.-]{2,62})(?=/)",
        in_place=True,
    ),
    Label("host", "pod/ pod:", r"\b[Pp]od[/:]\s{0,4}([a-z0-9][\w.-]{2,252})", in_place=True),
    Label("id", "instance", r"\b(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)\b", in_place=True),
    # parts of machines
    Label("id", "gpu- mig-", rf"\b(?:GPU|MIG)-({_HEX_UUID})", in_place=True),
    Label(
        "id",
        "boot_ machine_id machine-id product_ system_uuid serial",
        rf"(?i)(?:boot|machine|system|product|board|chassis|host)[ _-]?(?:id"
        rf"|uuid)[\"'\]]?\s{{0,40}}[:= ]\s{{0,40}}\\{{0,4}}[\"']?({_HEX_UUID}|[0-9a-f]{{32}})",
        in_place=True,
    ),
    Label(
        "id",
        "boot machine product system",
        rf"(?i)(?:boot|machine|system|product|board|chassis|host)[ _-]?(?:id"
        rf"|uuid)\\{{0,4}}[\"'\]]?\s{{0,40}}[:= ]\s{{0,40}}\\{{0,4}}[\"']?({_HEX_UUID}|[0-9a-f]{{32}})",
        in_place=True,
    ),
    Label(
        "id",
        "serial",
        r"(?i)\bserial(?:[ _]number|[ _]no\.?)?\\{0,4}[\"']?\s{0,60}[:=]\s{0,8}\\{0,4}[\"']?([A-Z0-9-]{8,40})",
        in_place=True,
    ),
    Label(
        "id",
        "guid gid",
        r"(?i)\b(?:node|port|system|sys_image|image)?[ _]?g(?:u)?id:?\s{1,40}((?:0x)?[0-9a-f]{16}"
        r"|[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![\w:])",
        in_place=True,
    ),
)
