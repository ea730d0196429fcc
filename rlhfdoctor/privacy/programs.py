"""Secrets of programs by their place: arguments, files of passwords, keys that are shown after words for them."""

from __future__ import annotations

from rlhfdoctor.privacy.form import Place

_RANDOM = r"[A-Za-z0-9+/_~.-]"
_LONG = r"(?=[\w.+/=~-]{0,200}\d)[A-Za-z0-9+][\w.+/=~-]{15,400}"
"""A key in a list."""
_MIXED = r"\W{1,40}(?![\d.,+-]{1,20}(?:e[-+]?\d{1,3})?\b)(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[A-Za-z])[^\s\"']{8}"
"""A value with letters as well as figures."""
PLACES = (
    # programs
    Place("sshpass", r"\bsshpass\s{1,8}-p\s{0,8}(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s\"']\S{0,199})"),
    Place(
        "sudo",
        r"(?:\becho|printf\s{1,4}(?:\S{1,20}))\s{1,8}(?:-n\s{1,4})?([^\n"
        r"|]{1,200}?)\s{0,8}\|\s{0,8}sudo\s[^\n|]{0,60}?-\w{0,6}S",
    ),
    Place("sudo", r"\bsudo\s[^\n|]{0,200}?-\w{0,6}S[^\n|]{0,200}?<<<\s{0,8}([^\n]{1,200})"),
    Place(
        "<<<",
        r"\b(?:kinit|su|cryptsetup|gpg2?|(?:ch)?passwd|smbpasswd|vncpasswd)\s[^\n|]{0,200}?<<<\s{0,8}"
        r"(?:\"([^\"\n]{1,200})\"|'([^'\n]{1,200})'|([^\s\"']\S{0,199}))",
    ),
    Place(
        "passwd",
        r"\becho\s{1,8}(?:-n\s{1,4})?[\"']?(?:[\w.-]{1,64}:)?([^\n"
        r"|\"']{1,200}?)[\"']?\s{0,8}\|\s{0,8}(?:sudo\s{1,8})?(?:ch)?passwd\b",
    ),
    Place(
        "echo printf",
        r"(?:\becho|\bprintf\s{1,4}\S{1,20})\s{1,8}(?:-n\s{1,4})?[\"']?([^\n|\"']{1,200}?)[\"']?\s{0,8}\|\s{0,8}(?:sudo\s{1,8})?"
        r"(?:cryptsetup|gpg2?|kinit|su|smbpasswd|vncpasswd|keyctl|ecryptfs\S{0,30}|pass|age|ansible-vault)\b",
    ),
    Place("<(", r"(?i)pass[\w-]{0,16}[ =]{1,2}<\(\s{0,4}(?:echo|printf)\s{1,8}(?:-n\s{1,4})?[\"']?([^\s\"')]{1,200})"),
    Place("lftp", r"\blftp\b[^\n]{0,200}?\s-u\s{0,8}[\"']?[^\s,\"']{1,100},([^\s\"']{1,200})"),
    Place(
        "socks4 socks5", r"\bsocks[45]\s{1,20}[\w.:-]{3,200}\s{1,20}\d{2,5}\s{1,20}\S{1,100}\s{1,20}([^\s\"'\\]{1,100})"
    ),
    Place(
        "--password-stdin",
        r"\b(?:echo|printf)\s{1,8}(?:-n\s{1,4})?([^\n|]{1,400}?)\s{0,8}\|[^\n]{0,200}?--password-stdin",
    ),
    Place("--password-stdin", r"--password-stdin\s{0,4}<<<\s{0,4}[\"']?([^\s\"']{1,400})"),
    Place(
        "login",
        r"\b(?:wandb|swanlab|huggingface-cli|hf|modelscope)\s{1,8}(?:auth\s{1,8})?login\b[^\n]{0,200}?\s(?:-k"
        r"\s{1,8}|--token[ =]|--key[ =])?([\w-]{10,})",
    ),
    Place("vault", r"\bvault\s{1,8}login\s{1,8}(?:-\S{1,80}\s{1,8}){0,8}([\w.-]{16,})"),
    Place(
        "vault",
        r"\bvault\s{1,8}(?:write|kv\s{1,8}(?:put|patch))\s[^\n=]{0,200}?((?:\s{1,8}[\w.-]{1,80}=[^\s\"']{1,400}){1,20})",
    ),
    Place(
        "login",
        r"\b(?:wandb|swanlab|huggingface-cli|hf|modelscope)\s{1,8}(?:auth\s{1,8})?login\b[^\n]{0,120}?"
        r"<<-?\s{0,4}[\"']?\w{1,20}[\"']?\r?\n(?:\([^)\n]{0,80}\))?[ \t]{0,20}([\w.-]{10,400})",
        1,
    ),
    Place("fernet( github(", r"\b(?:Fernet|Github)\(\s{0,8}b?[\"']([\w.+/=-]{16,200})[\"']", is_random=True),
    Place(
        ".login( login(",
        r"\b(?:wandb|swanlab|huggingface_hub|hub|notebook_)?\.?login\(\s{0,8}(?:(?:key|api_key"
        r"|token)\s{0,4}=)?\s{0,8}b?[\"']([\w.-]{10,})",
    ),
    Place(
        "login",
        r"\b(?:docker|helm|podman|nerdctl|oras|az|cloudctl)\s[^\n]{0,200}?\blogin\b[^\n]{0,200}?\s(?:-p"
        r"|--password(?!-stdin))[ =]{0,4}(\S+)",
    ),
    Place(
        "curl etcdctl",
        r"\b(?:curl|etcdctl)\b[^\n]{0,300}?\s(?:-[a-zA-Z]{0,8}u|--user|--proxy-user|-U)[ \t=]?"
        r"[\"']?([^\s\"':]{1,100}:[^\s\"']{1,300})",
    ),
    Place("mysql maria", r"\b(?:mysql\w{0,12}|mariadb)\b[^\n]{0,200}?\s-p([^\s\"']{4,})"),
    Place("requirepass masterauth", r"\b(?:requirepass|masterauth)[ =]{1,8}[\"']?([^\s\"']{4,200})"),
    Place(
        "$(echo $(printf `echo `printf",
        r"(?i)(?:key|token|secret|passw\w{0,4}|passphrase)=[\"']?(?:\$\(|`)\s{0,4}(?:echo|printf)\s{1,8}(?:-n\s{1,4})?[\"']?"
        r"([^\s\"')`]{4,400})",
    ),
    Place(
        "echo printf",
        r"\b(?:echo|printf)\s{1,8}(?:(?:-\w{1,4}|[\"']?%s(?:\\n)?[\"']?)\s{1,4}){0,2}[\"']?([^\s\"'|>$]{6,400})[\"']?"
        r"\s{0,8}>{1,2}\s{0,8}[\w./~$-]{0,200}(?:token|secret|passw|netrc|credential)",
    ),
    Place(
        "--from-literal",
        r"\bsecret\s[^\n]{0,200}?--from-literal[= ][\"']?[\w.-]{1,100}=[\"']?([^\s\"']{4,4000})",
    ),
    Place("--from-literal", r"--from-literal[= ][\"']?[\w.-]{1,100}=[\"']?([^\s\"']{8,4000})", is_random=True),
    Place(
        "${",
        r"\$\{\w{0,80}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|CREDENTIALS?):?[-=+][\"']?([^}\s\"'$]{8,4000})",
        is_random=True,
    ),
    Place("redis-cli", r"\bredis-cli\b[^\n]{0,200}?\s-a\s{1,8}(\S+)"),
    Place("mongo twine vncpasswd", r"\b(?:mongo\w{0,8}|twine)\b[^\n]{0,200}?\s-p\s{0,8}([^\s\"']{4,})"),
    Place("openssl", r"\bopenssl\b[^\n]{0,300}?(?:\s-k\s{1,8}|\s-pass(?:in|out)?\s{1,8}pass:)([^\s\"']{1,200})"),
    Place(
        "7z zip rar",
        r"\b(?:7z\w?|rar|unrar)\b[^\n]{0,300}?\s-p([^\s\"']{1,200})"
        r"|\b(?:un)?zip\b[^\n]{0,300}?\s-P\s{0,8}([^\s\"']{1,200})",
    ),
    Place(
        "ssh-keygen",
        r"\bssh-keygen\b[^\n]{0,300}?\s-[NP]\s{1,8}(?:'([^'\n]{1,200})'|\"([^\"\n]{1,200})\""
        r"|([^\s\"']{1,200}))",
    ),
    Place("htpasswd", r"\bhtpasswd\s{1,8}-\w{0,6}b\w{0,6}\s{1,8}\S{1,200}\s{1,8}\S{1,100}\s{1,8}([^\s\"']{1,200})"),
    Place("net_use", r"(?i)\bnet\s{1,8}use\s{1,8}\S{1,20}\s{1,8}\S{1,200}\s{1,8}([^\s/]\S{0,200})\s{1,8}/user"),
    Place(
        "smbclient rpcclient",
        r"\b(?:smb|rpc)client\b[^\n]{0,300}?\s-U\s{0,8}[\"']?[^\s%\"']{1,100}%([^\s\"']{1,200})",
    ),
    Place("ldap", r"\bldap\w{1,12}\b[^\n]{0,300}?\s-w\s{1,8}([^\s\"']{1,200})"),
    Place(
        "ossutil obsutil coscli cosutil coscmd",
        r"\b(?:ossutil\w{0,4}|obsutil|coscli|cosutil|coscmd)\b[^\n]{0,300}?\s(?:-k|--key|-s)[ =]{1,4}([^\s\"']{8,})",
    ),
    Place(
        "mc_alias mc_config",
        r"\bmc\s{1,8}(?:alias\s{1,8}set|config\s{1,8}host\s{1,8}add)\s{1,8}\S{1,80}\s{1,8}\S{1,200}\s{1,8}\S{"
        r"1,100}\s{1,8}([^\s\"']{4,})",
    ),
    Place("ipmitool", r"\bipmitool\b[^\n]{0,300}?\s-P\s{1,8}([^\s\"']{1,200})"),
    Place("x11vnc -passwd", r"\s-passwd\s{1,8}([^\s\"']{1,200})"),
    Place(
        "expect",
        r"\bexpect\b[^\n]{0,400}?assword[^\n]{0,200}?\bsend\s{1,8}(?:--\s{1,4})?\\{0,4}\"([^\"\\\n]{1,200})",
    ),
    Place(
        "identified",
        r"(?i)\bidentified\s{1,8}(?:with\s{1,8}\S{1,60}\s{1,8})?by\s{1,8}\\{0,4}[\"']([^\"'\n]{1,200})",
    ),
    Place("password", r"(?i)\bpassword\s{1,8}for\s{1,8}\S{1,100}\s{0,8}=\s{0,8}(?:password\()?[\"']([^\"'\n]{1,200})"),
    Place(
        "apikey( api_key( secretstr( token( password(",
        r"(?i)(?:api_?key|secretstr|token|password)\((?:\w{1,20}\s{0,4}=\s{0,4})?b?[\"']([^\"'\n]{8,400})",
        is_random=True,
    ),
    Place(
        "auth=( auth_=_( auth(",
        r"(?i)(?:\bauth\s?=\s?|\b(?:HTTP)?(?:Basic|Digest|Proxy)Auth)\(\s{0,8}(?:\w{1,20}=)?b?[\"'][^\"'\n]{1,200}[\"']"
        r",\s{0,8}(?:\w{1,20}=)?b?[\"']([^\"'\n]{1,200})[\"']",
    ),
    Place(
        ".login(",
        r"\.login\(\s{0,8}(?:b?[\"'][^\"'\n]{1,200}[\"']|[\w.\[\]]{1,80}),\s{0,8}b?[\"']([^\"'\n]{1,200})[\"']",
    ),
    Place("auth(", r"\bAuth(?:V[24])?\(\s{0,8}b?[\"']([^\"'\n]{8,100})[\"'],\s{0,8}b?[\"']([^\"'\n]{8,100})[\"']"),
    Place(
        "password_for passphrase_for",
        r"(?i)\b(?:password|passphrase)[ ]for[ ](?:(?:user|key)[ ])?\\{0,4}[\"']?[^\s\"'\\]{1,200}\\{0,4}[\"']?"
        r":[ \t]{0,4}"
        r"(?=[^\s\"'<]{0,60}\d)(?=[^\s\"'<]{0,60}[a-z])(?![^\s\"'<]{0,60}:(?:\s|$))([^\s\"'<\\]{6,200})",
    ),
    Place("::add-mask::", r"::add-mask::(?!\$)([^\s\"'<\\]{4,400})"),
    Place(
        "sharedaccesssignature",
        r"(?i)sharedaccesssignature\\{0,4}[\"']?\s?[:=]\s{0,4}\\{0,4}[\"']?([^\s\"'<>;\\]{8,4096})",
    ),
    Place("psk", r"(?<![\w.-])psk\s{0,4}=\s{0,4}\\{0,4}\"([^\"\\\n]{8,63})\\{0,4}\""),
    # files
    Place(
        ":",
        r"(?m)(?:^|(?<=[\s\"'>(,=]))(?![0-9a-fA-F]{1,4}:)(?:[\w.-]{1,200}|\*|\[[0-9a-f:]{2,40}\]):(?:\d{2,5}|\*):(?:[\w-]{1,64}"
        r"|\*):[\w.-]{1,64}:([^\s\"'<:]{4,200})(?!:)",
    ),
    Place("machine", r"\bmachine\s{1,8}\S{1,200}\s{1,40}login\s{1,8}\S{1,200}\s{1,40}password\s{1,8}(\S+)", 3),
    Place('"auth"', r"\"auth\\{0,4}\"\s{0,4}:\s{0,4}\\{0,4}\"([A-Za-z0-9+/=_-]{8,4096})"),
    Place(
        "secret opaque",
        r"\bkind\\{0,4}[\"']?:\s{0,4}\\{0,4}[\"']?Secret\b[^}]{0,4000}?\bdata\\{0,4}[\"']?:\s{0,4}\{([^}]{4,4"
        r"000})\}",
        12,
    ),
    Place(
        "secret opaque",
        r"(?m)\bkind:\s{0,4}Secret\b(?:\n[^\n]{0,400}){0,12}?\n[ \t]{0,40}(?:string)?[dD]ata:[ \t]{0,8}\r?\n("
        r"(?:[ \t]{1,40}[\w.-]{1,100}:[^\n]{1,8000}(?:\n|\Z)){1,40})",
        40,
    ),
    Place(
        "data:",
        r"(?m)^[ \t]{0,20}(?:string)?[dD]ata:[ \t]{0,8}\r?\n((?:[ \t]{1,40}[\w.-]{1,100}:[^\n]{1,8000}\n){1,40})"
        r"(?:[ \t]{0,20}immutable:[^\n]{0,20}\n)?[ \t]{0,20}kind:[ \t]{1,4}Secret\b",
        45,
    ),
    Place("data:", r"\b(?:string)?[dD]ata: ((?:[\w.-]{1,100}: [^\s'\"]{1,8000} ){1,40}?)kind: Secret\b"),
    Place(
        '"data"',
        r"\"data\":\s{0,4}\{([^{}]{4,8000})\},\s{0,40}(?:\"immutable\":[^\n]{0,20},\s{0,40})?\"kind\":\s{0,4}\"Secret\b",
        45,
    ),
    Place(
        "secret",
        r"\bkind: Secret (?:[^\n]{0,200}? )?(?:string)?[dD]ata: ((?:[\w.-]{1,100}: [^\s'\"]{1,8000} ?){1,40})",
    ),
    Place(
        "name",
        r"(?i)\\{0,4}[\"']?name\\{0,4}[\"']?[:=]\s{0,8}\\{0,4}[\"']?\w{0,80}(?:(?:KEY|TOKEN|SECRET|PASSWORD"
        rf"|PASSWD|CREDENTIAL)\w{{0,40}}|_(?:PW|SK|AK)(?=\W{{1,60}}value{_MIXED}))"
        r"\\{0,4}[\"']?,?\s{1,40}\\{0,4}[\"']?value\\{0,4}[\"']?[:=]\s{0,8}\\{0,4}[\"']?([^\s\"'\\<>]{4,4096}"
        r")",
        1,
    ),
    Place(
        "value",
        r"(?i)\bvalue\\{0,4}[\"']?:\s{0,8}\\{0,4}[\"']?([^\s\"'\\<>,]{4,4096})\\{0,4}[\"']?,?\s{1,40}\\{0,4}["
        r"\"']?name\\{0,4}[\"']?:"
        r"\s{0,8}\\{0,4}[\"']?\w{0,80}(?:KEY|TOKEN|SECRET|PASSWORD)",
        1,
    ),
    Place(
        "value",
        rf"(?i)\bvalue(?={_MIXED})\\{{0,4}}[\"']?:\s{{0,8}}\\{{0,4}}[\"']?([^\s\"'\\<>,]{{8,4096}})\\{{0,4}}[\"']?,?\s{{1,40}}\\{{0,4}}"
        r"[\"']?name\\{0,4}[\"']?:\s{0,8}\\{0,4}[\"']?\w{0,80}_(?:PW|SK|AK)(?!\w)",
        1,
    ),
    Place(
        "{",
        r"(?i)(?:password|passwd|secret|token|api_?key)\\{0,4}[\"']\s{0,4}:\s{0,4}\{\s{0,4}\\{0,4}[\"']"
        r"(?:value|text|data|plain)\\{0,4}[\"']\s{0,4}:"
        r"\s{0,4}\\{0,4}[\"']([^\"'\\\n]{4,400})",
    ),
    Place(
        "[",
        r"(?i)(?:api_?keys|access_?keys|\w{0,20}_tokens|passwords|secrets"
        r"|credentials)\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}\[([^\[\]\n]{8,4000})\]",
        is_random=True,
    ),
    Place(
        "tokens=[ tokens:[ tokens:_[ tokens_=_[ tokens\":_[ tokens\":[ tokens':_[ tokens':[",
        rf"(?i)(?<![\w.-])tokens\\{{0,4}}[\"']?\s{{0,4}}[:=]\s{{0,4}}\[(\s{{0,4}}\\{{0,4}}[\"']{_LONG}\\{{0,4}}[\"'][^\[\]\n]{{0,4000}})\]",
        is_random=True,
    ),
    Place(
        "keys_ tokens_ secrets_ passwords_",
        rf"(?i)--[\w.-]{{0,60}}(?:keys|tokens|secrets|passwords)[ \t]{{1,4}}({_LONG}(?:[ \t]{{1,4}}{_LONG}){{0,30}})",
        is_random=True,
    ),
    Place(
        '"key"',
        r"(?i)\\{0,4}\"key\\{0,4}\"\s{0,4}:\s{0,4}\\{0,4}\"[\w.-]{0,60}(?:password|passwd|secret|token|api_?key)\\{0,4}\"\s{0,4},"
        r"\s{0,40}\\{0,4}\"value\\{0,4}\"\s{0,4}:\s{0,4}\\{0,4}\"([^\"\\\n]{4,400})",
    ),
    Place(
        "ak= sk= ak: sk: ak_= sk_=",
        r"(?i)(?<![\w.-])(?:ak|sk)\s?[:=]\s{0,4}[\"']?([A-Za-z0-9+/_-]{16,200})",
        is_random=True,
    ),
    Place(
        '"key"',
        r"\\{0,4}\"username\\{0,4}\"\s{0,4}:[^\n{}]{1,200}\\{0,4}\"key\\{0,4}\"\s{0,4}:\s{0,4}\\{0,4}\"([^\""
        r"\\\s]{16,100})",
    ),
    Place("</", r"(?i)<(?:[\w:.-]{0,60}(?:password|passwd|secret|token|key|credential))>([^<\n]{4,400})</"),
    Place(
        "</value>",
        r"(?i)<name>[^<\n]{0,100}(?:key|secret|password|token)[^<\n]{0,40}</name>\s{0,40}<value>([^<\n]{4,400"
        r"})</value>",
        1,
    ),
    Place(
        "value=",
        r"(?i)\bname=\\{0,4}[\"']?\w{0,30}(?:password|passwd|token"
        r"|secret)\w{0,20}\\{0,4}[\"']?[^>\n]{0,100}?\bvalue=\\{0,4}[\"']?([^\"'>\s\\]{4,400})",
    ),
    Place("$apr1$ $1$ $5$ $6$ $2 $y$ $argon2", r"\$(?:apr1|[156y]|2[abxy]|argon2\w{1,2})\$([\w./$=,+-]{20,200})"),
    Place("unseal", r"(?i)\bunseal key(?: \d{1,2})?:\s{0,4}([\w+/=]{20,})"),
    Place(
        "private-lines: private-mac:",
        r"Private-Lines: \d{1,4}((?:\s{1,40}[\w+/=]{30,200}(?![\w-])){1,200})|Private-MAC: ([0-9a-f]{32,128})",
        60,
    ),
    Place("root_token", r"(?i)\broot token:\s{0,4}([\w.-]{16,})"),
    Place("s.", r"(?<![\w./-])(s\.(?=\w{0,23}\d)(?=\w{0,23}[A-Z])(?=\w{0,23}[a-z])[A-Za-z0-9]{24})(?![\w.])"),
    # bare keys
    Place(
        "keys= tokens= secrets= passwords=",
        r"(?i)(?:api_?keys|access_?keys|_tokens|passwords|secrets)=[\"']?([^\s\"']{16,8000})",
        is_random=True,
    ),
    Place("basic", r"\b[Bb]asic ([A-Za-z0-9+/]{12,4096}={0,2})(?![\w+/=])", is_random=True),
    Place(
        'pin= pin: pin" otp= otp: otp"',
        r"(?i)(?<![\w.$-])(?:pin|t?otp)\\{0,4}[\"']?\s?[:=]\s{0,4}\\{0,4}[\"']?(\d{4,8})(?![\w.])",
    ),
    Place(
        "wandb w&b",
        r"(?i)\b(?:wandb|w&b)\b(?:(?!commit|sha|hash|revision|digest"
        r"|git)[^\n]){0,160}?(?<![\w/.-])([0-9a-f]{40})(?![\w-])",
    ),
    Place("wandb w&b", r"(?<![\w/.-])([0-9a-f]{40})(?![\w-])(?:(?!commit|sha)[^\n]){0,60}?\b(?:wandb|W&B)\b"),
    Place(
        "akia asia [secret] aws",
        r"(?:AKIA|ASIA|\[secret\]|\baws\b)[^\n]{0,80}?(?<![\w/+.-])([A-Za-z0-9+/]{40})(?![\w/+])",
        is_random=True,
    ),
    Place(
        "_key",
        r"(?i)(?:\b4(?:01|03|29)\b|unauthori[sz]ed|forbidden|rate.?limit|quota|invalid|incorrect|expired)[^\n]{0,60}?"
        rf"\bkey[: ]{{1,3}}[\"'`]?({_RANDOM}{{20,100}})(?![\w/])",
        is_random=True,
    ),
    Place(
        "api auth secret token credential passw 密钥 密码 令牌",
        rf"(?i)(?:api[ _-]?key|\bauth|secret|token|credentials?|password|passwd|密钥|密码"
        rf"|令牌)(?![\w-])[^\n=]{{0,20}}?(?<![\w/.-])({_RANDOM}{{20,100}})(?![\w/])",
        is_random=True,
    ),
)
