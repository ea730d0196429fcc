"""Where names of people stand: paths, prompts, tables, signatures."""

from __future__ import annotations

from rlhfdoctor.privacy.form import Label

_IS = r"\\{0,4}[\"']?[ \t]{0,40}[=:：][ \t]{0,40}\\{0,4}[\"']?"
_START = r"(?:^|(?<=[\s\"'>(=,;]))"
_END = r"(?![\w-])"
_CJK = r"\u3400-\u9fff\uac00-\ud7af\u3040-\u30ff"
_NAME = r"[^\W\d][\w.-]{1,40}"
LABELS = (
    # people
    Label(
        "user",
        "/home/ /users/",
        r"/(?:home|Users|export/home|data/home|mnt/home|share/home)/([^\W_][\w.-]{1,40})",
    ),
    Label("user", "users", rf"[A-Z]:[\\/]{{1,8}}Users[\\/]{{1,8}}({_NAME})"),
    Label("user", "user logname", rf"(?i)(?<![A-Za-z])(?:USER|LOGNAME|USERNAME|SUDO_USER)=[\"']?({_NAME})(?!\()"),
    Label("user", "user", rf"[\"']user(?:_?name)?\\{{0,4}}[\"']:\s{{0,4}}\\{{0,4}}[\"']({_NAME})"),
    Label("user", "username:", rf"(?i){_START}user_?name: {{1,4}}[\"']?({_NAME})"),
    Label(
        "user",
        "user:",
        rf"(?m){_START}user: {{1,4}}[\"']?([a-z][a-z0-9_.-]{{2,31}}|[{_CJK}]{{2,5}})[\"']?(?=\s{{0,8}}(?:$"
        rf"|[\"'<&\\]))",
    ),
    Label("user", "uid= userid=", rf"\buid=\d{{1,12}}\(({_NAME})\)|\bUserId=({_NAME})\("),
    Label(
        "user",
        "logged for_user for_invalid_user publickey password_for",
        rf"\blogged in as: ({_NAME})|\b(?:opened|closed) for (?:invalid )?user ({_NAME})"
        rf"|\bfor user ({_NAME})|\b(?:publickey|password) for ({_NAME})",
    ),
    Label("user", "sudo:", rf"\bsudo: {{1,8}}({_NAME}) : "),
    Label("user", "@", rf"(?m)^\(?[\w.-]{{0,40}}\)? ?\[?([a-z_{_CJK}][\w.-]{{1,31}})@[\w.-]{{1,63}}(?=[:\s])"),
    Label(
        "user",
        "@",
        rf"{_START}\[?([a-z_{_CJK}][\w.-]{{1,31}})@[\w.-]{{2,63}}(?=:[~/][^\s$#]{{0,200}}[$#]"
        rf"|\s[^\s\]]{{1,100}}\][$#])",
    ),
    Label(
        "user",
        "ssh scp sftp rsync",
        r"\b(?:ssh|scp|sftp|rsync)\b[^\n]{0,80}?\s([A-Za-z_][\w.-]{1,31})@(?=[\w.-])",
    ),
    Label(
        "user",
        "author committer signed-off co-authored reviewed tested acked commit:",
        r"(?i)(?<![\w-])(?:author|commit(?:ter)?|(?:signed-off|co-authored|reviewed|tested|acked"
        r"|reported)-by):\s{1,8}([^<>\n@\"']{2,60}?)\s{1,4}(?=<)",
    ),
    Label(
        "user",
        "用户 姓名 负责人 账号 帐号 作者 提交人 联系人 微信 工号 学号",
        rf"(?:用户名?|姓名|负责人|账号|帐号|作者|提交人|联系人|微信号?|工号|学号)\s{{0,4}}{_IS}([{_CJK}]{{2,5}}{_END}"
        rf"|[A-Za-z0-9][\w.-]{{2,40}})",
    ),
    Label(
        "user",
        "nodelist(reason)",
        rf"{_START}\d{{1,10}}[ \t]{{1,40}}\S{{1,40}}[ \t]{{1,40}}\S{{1,60}}[ \t]{{1,40}}({_NAME})[ \t]{{1,40"
        rf"}}(?:R|PD|CG|CD|CA|F|TO|S)[ \t]{{1,40}}(?:\d{{1,3}}-)?(?:\d{{1,3}}:){{1,2}}\d\d[ \t]",
        100,
    ),
    Label(
        "user",
        "%mem",
        rf"(?m){_START}({_NAME})[ \t]{{1,40}}\d{{1,10}}[ \t]{{1,20}}\d{{1,5}}\.\d[ \t]{{1,20}}\d{{1,3}}\.\d[ "
        rf"\t]{{1,20}}\d{{1,15}}[ \t]{{1,20}}\d{{1,15}}[ \t]",
        400,
    ),
    Label(
        "user",
        "_?_ pts/ tty",
        rf"{_START}({_NAME})[ \t]{{1,40}}(?:pts/\d{{1,4}}|tty\d{{1,2}})[ \t]"
        rf"|{_START}({_NAME})[ \t]{{1,40}}\d{{1,10}}[ \t]{{1,20}}\d{{1,5}}\.\d[ \t]{{1,20}}\d{{1,3}}\.\d"
        rf"(?:[ \t]{{1,20}}\d{{1,15}}){{2}}[ \t]{{1,20}}(?:\?|pts/\d{{1,4}}|tty\d{{1,2}})[ \t]",
    ),
    Label(
        "user",
        "jobname",
        rf"{_START}({_NAME})[ \t]{{1,40}}\S{{1,60}}[ \t]{{1,40}}(?:COMPLETED|FAILED|CANCELLED|OUT_OF_ME|TIMEOUT|RUNNING"
        rf"|PENDING|NODE_FAIL|PREEMPTED)",
        100,
    ),
    Label(
        "user",
        "r-- rw- r-x rwx",
        rf"[-dlbcps][-rwxsStT]{{9}}[.+@]?[ \t]{{1,8}}\d{{1,6}}[ \t]{{1,8}}({_NAME})[ \t]{{1,20}}({_NAME})[ \t"
        rf"]{{1,20}}\d",
    ),
    Label(
        "phone",
        "phone tel mobile 电话 手机 联系方式 whatsapp",
        r"(?i)(?:phone|\btel(?:ephone)?|mobile|whatsapp|电话|手机"
        r"|联系方式)(?:号码?)?[^\d\n+]{0,6}(\+?\d[\d -]{6,18}\d)(?!\d)",
        in_place=True,
    ),
    Label(
        "phone",
        "+",
        r"(?<![\w.+])(\+[1-9]\d{0,2}[ -]\(?\d{2,4}\)?[ -]\d{3,4}(?:[ -]?\d{3,8}){0,2})(?![\w.])",
        in_place=True,
    ),
)
