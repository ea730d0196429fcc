"""Where names of people, machines, groups stand: what is beside them says what they are."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Label(NamedTuple):
    """A place of names; the pattern's groups are the names."""

    kind: str
    """user, host, group, id, phone"""
    signs: str
    """Words in small letters, of which one is in such a line; a `_` is a space."""
    form: str
    below: int = 0
    """Lines after that of the sign that belong to it."""
    in_place: bool = False
    """Whether what stands there is a name for sure, even if it is a word that has other meanings elsewhere."""


_IS = r"\\{0,4}[\"']?[ \t]{0,40}[=:：][ \t]{0,40}\\{0,4}[\"']?"
_START = r"(?:^|(?<=[\s\"'>(=,;]))"
_END = r"(?![\w-])"
_CJK = r"\u3400-\u9fff\uac00-\ud7af\u3040-\u30ff"
_NAME = r"[^\W\d][\w.-]{1,40}"
_HOST = r"[A-Za-z0-9][\w.-]{1,62}"
_HEX_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

LABELS = (
    # people
    Label("user", "/home/ /users/", rf"/(?:home|Users|export/home|data/home|mnt/home|share/home)/([^\W_][\w.-]{{1,40}})"),
    Label("user", "users", rf"[A-Z]:[\\/]{{1,8}}Users[\\/]{{1,8}}({_NAME})"),
    Label(
        "user",
        "user logname",
        rf"(?i)(?<![A-Za-z])(?:USER|LOGNAME|USERNAME|SUDO_USER)=[\"']?({_NAME})(?!\()",
    ),
    Label("user", "user", rf"[\"']user(?:_?name)?\\{{0,4}}[\"']:\s{{0,4}}\\{{0,4}}[\"']({_NAME})"),
    Label("user", "username:", rf"(?i){_START}user_?name: {{1,4}}[\"']?({_NAME})"),
    Label("user", "user:", rf"(?m){_START}user: {{1,4}}[\"']?([a-z][a-z0-9_.-]{{2,31}}|[{_CJK}]{{2,5}})[\"']?(?=\s{{0,8}}(?:$|[\"'<&\\]))"),
    Label("user", "uid= userid=", rf"\buid=\d{{1,12}}\(({_NAME})\)|\bUserId=({_NAME})\("),
    Label("user", "logged for_user for_invalid_user publickey password_for", rf"\blogged in as: ({_NAME})|\b(?:opened|closed) for (?:invalid )?user ({_NAME})|\bfor user ({_NAME})|\b(?:publickey|password) for ({_NAME})"),
    Label("user", "sudo:", rf"\bsudo: {{1,8}}({_NAME}) : "),
    Label("user", "@", rf"(?m)^\(?[\w.-]{{0,40}}\)? ?\[?([a-z_{_CJK}][\w.-]{{1,31}})@[\w.-]{{1,63}}(?=[:\s])"),
    Label("user", "@", rf"{_START}\[?([a-z_{_CJK}][\w.-]{{1,31}})@[\w.-]{{2,63}}(?=:[~/][^\s$#]{{0,200}}[$#]|\s[^\s\]]{{1,100}}\][$#])"),
    Label("user", "ssh scp sftp rsync", rf"\b(?:ssh|scp|sftp|rsync)\b[^\n]{{0,80}}?\s([A-Za-z_][\w.-]{{1,31}})@(?=[\w.-])"),
    Label("user", "author committer signed-off co-authored reviewed tested acked commit:", r"(?i)(?<![\w-])(?:author|commit(?:ter)?|(?:signed-off|co-authored|reviewed|tested|acked|reported)-by):\s{1,8}([^<>\n@\"']{2,60}?)\s{1,4}(?=<)"),
    Label("user", "用户 姓名 负责人 账号 帐号 作者 提交人 联系人 微信 工号 学号", rf"(?:用户名?|姓名|负责人|账号|帐号|作者|提交人|联系人|微信号?|工号|学号)\s{{0,4}}{_IS}([{_CJK}]{{2,5}}{_END}|[A-Za-z0-9][\w.-]{{2,40}})"),
    Label("user", "nodelist(reason)", rf"{_START}\d{{1,10}}[ \t]{{1,40}}\S{{1,40}}[ \t]{{1,40}}\S{{1,60}}[ \t]{{1,40}}({_NAME})[ \t]{{1,40}}(?:R|PD|CG|CD|CA|F|TO|S)[ \t]{{1,40}}(?:\d{{1,3}}-)?(?:\d{{1,3}}:){{1,2}}\d\d[ \t]", 100),
    Label("user", "%mem", rf"(?m){_START}({_NAME})[ \t]{{1,40}}\d{{1,10}}[ \t]{{1,20}}\d{{1,5}}\.\d[ \t]{{1,20}}\d{{1,3}}\.\d[ \t]{{1,20}}\d{{1,15}}[ \t]{{1,20}}\d{{1,15}}[ \t]", 400),
    Label("user", "r-- rw- r-x rwx", rf"[-dlbcps][-rwxsStT]{{9}}[.+@]?[ \t]{{1,8}}\d{{1,6}}[ \t]{{1,8}}({_NAME})[ \t]{{1,20}}({_NAME})[ \t]{{1,20}}\d"),
    Label("phone", "phone tel mobile 电话 手机 联系方式 whatsapp", r"(?i)(?:phone|\btel(?:ephone)?|mobile|whatsapp|电话|手机|联系方式)(?:号码?)?[^\d\n+]{0,6}(\+?\d[\d -]{6,18}\d)(?!\d)", in_place=True),
    Label("phone", "+", r"(?<![\w.+])(\+[1-9]\d{0,2}[ -]\(?\d{2,4}\)?[ -]\d{3,4}(?:[ -]?\d{3,8}){0,2})(?![\w.])", in_place=True),
    # groups
    Label("group", "entity", rf"(?i)\bWANDB_ENTITY=[\"']?({_NAME})|[\"']entity\\{{0,4}}[\"']:\s{{0,4}}\\{{0,4}}[\"']({_NAME})", in_place=True),
    Label("group", "logged_in_as", rf"\blogged in as: [\w.-]{{1,60}} \(({_NAME})\)", in_place=True),
    Label("group", "wandb.ai swanlab.cn", rf"(?:wandb\.ai|swanlab\.cn(?:/@)?)/({_NAME})/", in_place=True),
    Label("group", "account", rf"(?i)(?<![a-z])(?:\w{{0,20}}job_account|slurm_account|--account|account)=({_NAME})|--account[ =]({_NAME})", in_place=True),
    Label("group", "sbatch srun salloc", rf"\b(?:sbatch|srun|salloc)\b[^\n]{{0,200}}?\s-A[ =]?({_NAME})", in_place=True),
    Label("group", "namespace kubectl helm", rf"(?i)\bnamespace\\{{0,4}}[\"']?[:=]\s{{0,4}}\\{{0,4}}[\"']?([a-z][\w-]{{2,62}})|\b(?:kubectl|helm)\b[^\n]{{0,200}}?\s(?:-n|--namespace)[ =]([a-z][\w-]{{2,62}})", in_place=True),
    Label("group", ".svc", r"(?<![\w-])[\w-]{1,63}\.([a-z][\w-]{1,62})\.svc(?![\w-])", in_place=True),
    Label("group", "s3: s3a: s3n: gs: oss: tos: cos: obs: bos: ks3: cosn: minio: jfs: juicefs: hdfs: wasb: abfs", rf"(?i)\b(?:s3[an]?|gs|oss|tos|cosn?|obs|bos|ks3|minio|jfs|juicefs|hdfs|wasbs?|abfss?)://({_HOST})", in_place=True),
    Label("group", "abfs wasb", rf"(?i)\b(?:abfss?|wasbs?)://[^\s/]{{1,100}}@({_HOST}?)(?=\.dfs|\.blob)", in_place=True),
    Label("group", "amazonaws.com aliyuncs.com myqcloud.com volces.com myhuaweicloud.com bcebos.com", r"(?i)://([a-z0-9][\w.-]{1,62}?)\.(?:s3|oss|cos|obs|tos|bj)[.-][\w.-]{0,60}(?:amazonaws|aliyuncs|myqcloud|volces|myhuaweicloud|bcebos)\.com", in_place=True),
    Label("group", "storage.googleapis amazonaws.com", r"(?i)://(?:storage\.googleapis|s3[\w.-]{0,60}\.amazonaws)\.com/([a-z0-9][\w.-]{1,62})", in_place=True),
    Label("group", ".aliyuncs.com ghcr.io docker.io nvcr.io quay.io .tencentyun.com .volces.com", r"(?i)(?<![\w-])(?:(?:cr|registry)[\w.-]{0,60}\.(?:aliyuncs|volces)\.com|\w{0,20}ccr\.ccs\.tencentyun\.com|ghcr\.io|docker\.io|quay\.io)/([\w.-]{2,62})(?=/)", in_place=True),
    Label("group", ".dkr.ecr arn:", r"(?<!\d)(\d{12})(?=\.dkr\.ecr)|\barn:aws[\w-]{0,10}:\w{1,40}:[\w-]{0,20}:(\d{12}):", in_place=True),
    Label("group", "--project gcloud", r"\bgcloud\b[^\n]{0,200}?--project[ =]([a-z][\w-]{3,40})", in_place=True),
    Label("group", "/resourcegroups/ /subscriptions/", rf"(?i)/subscriptions/({_HEX_UUID})|/resourceGroups/([\w.-]{{2,90}})", in_place=True),
    Label("group", ".slack.com .feishu.cn .larksuite .atlassian.net .sharepoint.com .notion.site .lightning.ai", r"(?i)://([a-z0-9][\w-]{1,62})\.(?:slack\.com|feishu\.cn|larksuite\.com|atlassian\.net|sharepoint\.com|notion\.site)", in_place=True),
    Label("group", "github gitlab gitee bitbucket huggingface hf-mirror modelscope codeup", r"(?i)(?:github\.com|gitlab\.com|gitee\.com|bitbucket\.org|huggingface\.co|hf-mirror\.com|modelscope\.cn)[/:](?:datasets/|spaces/|models/)?([\w.-]{2,62})(?=/)", in_place=True),
    Label("group", "/group- :group-", r"[/:]group-\d{1,6}/([\w.-]{2,100}?)(?=\.git|[/\s\"'<>)#?,;&\]\\]|$)", in_place=True),
    # machines
    Label(
        "host",
        "host node master endpoint",
        rf"(?i)(?<![A-Za-z])(?:host(?:name)?|node_?(?:name|list)?|batchhost|SLURMD_NODENAME|master[_-]addr|rdzv[_-]endpoint)"
        rf"[\"']?\s{{0,4}}[=: ]\s{{0,4}}[\"']?([A-Za-z][\w.-]{{3,62}})",
    ),
    Label("host", "nodelist", rf"(?i)\w{{0,30}}nodelist=({_HOST}?)(?=\[)", in_place=True),
    Label("host", "主机 节点 机器 服务器", rf"(?:主机名?|节点|机器名?|服务器)\s{{0,4}}{_IS}({_HOST})", in_place=True),
    Label(
        "host",
        "kernel: systemd dockerd kubelet slurmd ]:",
        rf"(?m){_START}(?:[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} [\d:]{{8}}|20\d\d-\d\d-\d\dT[\d:.,+-]{{8,24}}Z?) ([\w.-]{{1,63}}) "
        r"(?:kernel|systemd|dockerd|kubelet|slurmd|[\w-]{1,40}\[\d{1,10}\]):",
    ),
    Label("host", "nccl", rf"(?m)(?:{_START}|^\([^)\n]{{0,80}}\) ?)([A-Za-z][\w.-]{{1,62}}):\d{{1,10}}:\d{{1,10}} \[\d{{1,4}}\] NCCL"),
    Label("host", "srun: cancelled linux", rf"(?m)\bsrun: error: ([\w.-]{{2,63}}):|\bON ([\w.-]{{2,63}}) CANCELLED|{_START}Linux ([\w.-]{{2,63}}) \d"),
    Label("host", "ip-", r"\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b"),
    Label("host", "@", rf"(?m)^\(?[\w.-]{{0,40}}\)? ?\[?[a-z_{_CJK}][\w.-]{{1,31}}@([\w.-]{{1,63}})(?=[:\s])"),
    Label("host", "@", rf"{_START}\[?[a-z_{_CJK}][\w.-]{{1,31}}@([\w.-]{{2,63}})(?=:[~/][^\s$#]{{0,200}}[$#]|\s[^\s\]]{{1,100}}\][$#])"),
    Label("host", "ssh scp sftp rsync", r"\b(?:ssh|scp|sftp|rsync)\b[^\n]{0,80}?\s[A-Za-z_][\w.-]{1,31}@([\w.-]{2,63})"),
    Label("host", "mount", rf"\bmount\b[^\n]{{0,80}}?\s({_HOST}):/", in_place=True),
    Label("host", ".internal .local .lan .corp .cluster .intra", r"(?<![\w.-])([a-z0-9][a-z0-9.-]{0,250}\.(?:internal|local|lan|corp|cluster|intra))\b"),
    Label("host", "://", r"(?i)(?<=://)(?:[^\s/@\"'<>]{1,300}@)?([a-z0-9](?:[\w.-]{0,250}[a-z0-9])?)(?=[:/?#\s\"'<>),;\]\\]|$)", in_place=True),
    Label("host", "git@", r"\bgit@([\w.-]{2,200}):", in_place=True),
    Label("host", "image docker registry podman", r"(?i)(?:image|pull|push|run|from|registry)[:=\s\"']{1,6}((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24})(?=(?::\d{1,5})?/)", in_place=True),
    Label("group", "image docker registry podman", r"(?i)(?:image|pull|push|run|from|registry)[:=\s\"']{1,6}(?!(?:ghcr|docker|nvcr|quay)\.io)(?:(?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24}|host-\d{1,6})(?::\d{1,5})?/([\w.-]{2,62})(?=/)", in_place=True),
    Label("host", "pod/ pod:", r"\b[Pp]od[/:]\s{0,4}([a-z0-9][\w.-]{2,252})", in_place=True),
    Label("id", "instance", r"\b(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)\b", in_place=True),
    # parts of machines
    Label("id", "gpu- mig-", rf"\b(?:GPU|MIG)-({_HEX_UUID})", in_place=True),
    Label("id", "boot_ machine_id machine-id product_ system_uuid serial", rf"(?i)(?:boot|machine|system|product|board|chassis|host)[ _-]?(?:id|uuid)[\"'\]]?\s{{0,40}}[:= ]\s{{0,40}}\\{{0,4}}[\"']?({_HEX_UUID}|[0-9a-f]{{32}})", in_place=True),
    Label("id", "boot machine product system", rf"(?i)(?:boot|machine|system|product|board|chassis|host)[ _-]?(?:id|uuid)\\{{0,4}}[\"'\]]?\s{{0,40}}[:= ]\s{{0,40}}\\{{0,4}}[\"']?({_HEX_UUID}|[0-9a-f]{{32}})", in_place=True),
    Label("id", "serial", r"(?i)\bserial(?:[ _]number|[ _]no\.?)?\\{0,4}[\"']?\s{0,60}[:=]\s{0,8}\\{0,4}[\"']?([A-Z0-9-]{8,40})", in_place=True),
    Label("id", "guid gid", r"(?i)\b(?:node|port|system|sys_image|image)?[ _]?g(?:u)?id:?\s{1,40}((?:0x)?[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![\w:])", in_place=True),
)
"""Names in the order in which they are looked for."""

COMMON = frozenset(
    "root ubuntu ray admin nobody user users app worker docker jovyan runner default git rank nccl torch cuda train data vllm"
    " deepspeed sglang node kernel signal memory python error actor critic model models true false none null step loss name"
    " unknown localhost default-user system service shared public home library host hosts hostname list".split()
)
PUBLIC_GROUPS = frozenset(
    "openrlhf volcengine verl-project hiyouga hkust-nlp huggingface pytorch nvidia microsoft deepspeedai vllm-project"
    " ray-project sgl-project dao-ailab facebookresearch meta-llama openai google google-research google-deepmind qwen qwenlm"
    " deepseek-ai thudm zai-org internlm modelscope alibaba tencent bytedance bytedance-seed mistralai eleutherai allenai"
    " bigcode bigscience tiiuae baichuan-inc 01-ai anthropics nousresearch unslothai lm-sys open-thoughts agentica-org"
    " agentica-project apple intel amd rocm kubernetes docker apache tensorflow python pypa numpy scipy tatsu-lab"
    " novasky-ai hpcaitech baai princeton-nlp stanford-crfm moonshotai library rlhfdoctor novaskyai xai-org salesforce"
    " ibm-granite databricks mosaicml stanfordnlp triton-lang openbmb trl-lib docs blog login join settings orgs"
    " kube-system default monitoring istio-system".split()
)
"""Who publishes what such runs use; also what stands in the same place and is no name."""
PUBLIC_HOSTS = re.compile(
    r"(?i)(?:.*\.)?(?:pytorch\.org|github(?:usercontent)?\.com|github\.io|gitlab\.com|gitee\.com|bitbucket\.org"
    r"|huggingface\.co|hf\.co|hf-mirror\.com|nvidia\.(?:com|cn)|ray\.io|pypi\.org|pythonhosted\.org|python\.org|readthedocs\.(?:io|org)"
    r"|wikipedia\.org|arxiv\.org|googleapis\.com|google\.com|amazonaws\.com|aliyuncs\.com|myqcloud\.com|volces\.com"
    r"|wandb\.ai|swanlab\.cn|modelscope\.cn|tsinghua\.edu\.cn|ustc\.edu\.cn|aliyun\.com|tencent\.com|tencentyun\.com|huaweicloud\.com"
    r"|docker\.(?:io|com)|nvcr\.io|ghcr\.io|quay\.io|gcr\.io|anaconda\.(?:org|com)|conda\.io|slack\.com|discord(?:app)?\.com"
    r"|telegram\.org|feishu\.cn|larksuite\.com|dingtalk\.com|qq\.com|openai\.com|anthropic\.com|deepseek\.com"
    r"|example\.(?:org|com|net)|microsoft\.com|azure\.com|windows\.net|apache\.org|kubernetes\.io|w3\.org|gnu\.org"
    r"|kernel\.org|ubuntu\.com|debian\.org|stackoverflow\.com|deepspeed\.ai|vllm\.ai|tensorflow\.org|mlflow\.org|rust-lang\.org"
    r"|pydantic\.dev|hydra\.cc|lightning\.ai|x\.ai|sentry\.io|office\.com|pushplus\.plus|ftqq\.com|day\.app|ifttt\.com"
    r"|zapier\.com|hc-ping\.com|localhost|local)"
)
_NO_HOST = re.compile(
    r"(?i).*\.(?:py|log|cc|cpp|cu|json|ya?ml|sh|txt|out|err|h|so|md|svc)$|v?\d+(?:\.\d+)*$|local(?:host)?(?:\.|$)|.*_.*=.*"
    r"|host-\d+|\d{1,3}(?:\.\d{1,3}){3}"
)
_TOKEN = re.compile(r"(?:user|host|group|word|path|email|phone|id|serial)-\d+$")


def is_private(kind: str, name: str, projects: frozenset[str] = frozenset()) -> bool:
    """Whether a name in its place says whose run it was."""
    low = name.lower()
    if low in COMMON or low in projects or _TOKEN.match(name) or name == "[secret]":
        return False
    if kind == "host":
        return not (_NO_HOST.fullmatch(name) or PUBLIC_HOSTS.fullmatch(name))
    if kind == "group":
        return low not in PUBLIC_GROUPS and not PUBLIC_HOSTS.fullmatch(name)
    return not (kind == "user" and name.isdigit() and len(name) < _LEAST_DIGITS)


_LEAST_DIGITS = 5


def is_everywhere(kind: str, name: str) -> bool:
    """Whether a name is also hidden where nothing is beside it: it is none of the language's own words."""
    if kind == "phone":
        return False
    if kind == "user":
        return len(name) >= 3 or not name.isascii()
    return len(name) > 3 and (re.search(r"[\d.-]", name) is not None or not name.isascii())


@functools.cache
def signs_of(label: Label) -> tuple[str, ...]:
    """The signs of a label; none for every line."""
    return tuple(word.replace("_", " ") for word in label.signs.split())


@functools.cache
def compiled(form: str) -> re.Pattern[str]:
    """The pattern of a form, made when a sign of it is seen first."""
    return re.compile(form)
