"""Which names are private, of those that stand where names of people, groups, machines stand."""

from __future__ import annotations

import re

from rlhfdoctor.privacy import groups, machines, people

LABELS = (*people.LABELS, *groups.LABELS, *machines.LABELS)
"""In the order in which they are looked for."""

COMMON = frozenset(
    [
        "root",
        "ubuntu",
        "ray",
        "admin",
        "nobody",
        "user",
        "users",
        "app",
        "worker",
        "docker",
        "jovyan",
        "runner",
        "default",
        "git",
        "rank",
        "nccl",
        "torch",
        "cuda",
        "train",
        "data",
        "vllm",
        "deepspeed",
        "sglang",
        "node",
        "kernel",
        "signal",
        "memory",
        "python",
        "error",
        "actor",
        "critic",
        "model",
        "models",
        "true",
        "false",
        "none",
        "null",
        "step",
        "loss",
        "name",
        "unknown",
        "localhost",
        "default-user",
        "system",
        "service",
        "shared",
        "public",
        "home",
        "library",
        "host",
        "hosts",
        "hostname",
        "list",
    ]
)
PUBLIC_GROUPS = frozenset(
    [
        "volcengine",
        "verl-project",
        "hiyouga",
        "hkust-nlp",
        "huggingface",
        "pytorch",
        "nvidia",
        "microsoft",
        "deepspeedai",
        "vllm-project",
        "ray-project",
        "sgl-project",
        "dao-ailab",
        "facebookresearch",
        "meta-llama",
        "openai",
        "google",
        "google-research",
        "google-deepmind",
        "qwen",
        "qwenlm",
        "deepseek-ai",
        "thudm",
        "zai-org",
        "internlm",
        "modelscope",
        "alibaba",
        "tencent",
        "bytedance",
        "bytedance-seed",
        "mistralai",
        "eleutherai",
        "allenai",
        "bigcode",
        "bigscience",
        "tiiuae",
        "baichuan-inc",
        "01-ai",
        "anthropics",
        "nousresearch",
        "unslothai",
        "lm-sys",
        "open-thoughts",
        "agentica-org",
        "agentica-project",
        "apple",
        "intel",
        "amd",
        "rocm",
        "kubernetes",
        "docker",
        "apache",
        "tensorflow",
        "python",
        "pypa",
        "numpy",
        "scipy",
        "tatsu-lab",
        "novasky-ai",
        "hpcaitech",
        "baai",
        "princeton-nlp",
        "stanford-crfm",
        "moonshotai",
        "library",
        "rlhfdoctor",
        "novaskyai",
        "xai-org",
        "salesforce",
        "ibm-granite",
        "databricks",
        "mosaicml",
        "stanfordnlp",
        "triton-lang",
        "openbmb",
        "trl-lib",
        "docs",
        "blog",
        "login",
        "join",
        "settings",
        "orgs",
        "kube-system",
        "default",
        "monitoring",
        "istio-system",
    ]
)
"""Who publishes what such runs use; also what occurs in the same place and is not a name."""
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
    r"(?i)[^\n]{0,240}\.(?:py|log|cc|cpp|cu|json|ya?ml|sh|txt|out|err|h|so|md|svc)$|v?\d{1,20}(?:\.\d{1,20}){0,16}$"
    r"|local(?:host)?(?:\.|$)|[^=_]{0,240}_[^=]{0,240}=[^\n]{0,240}|host-\d{1,9}"
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
    """Whether a name is also hidden where nothing is beside it: it is not an ordinary word."""
    if kind == "phone":
        return False
    if kind == "user":
        return len(name) >= 3 or not name.isascii()
    return len(name) > 3 and (re.search(r"[\d.-]", name) is not None or not name.isascii())
