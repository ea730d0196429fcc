"""Where names of groups stand: accounts, buckets, registries, repositories."""

from __future__ import annotations

from rlhfdoctor.privacy.form import Label

_NAME = r"[^\W\d][\w.-]{1,40}"
_HOST = r"[A-Za-z0-9][\w.-]{1,62}"
_HEX_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
LABELS = (
    # groups
    Label(
        "group",
        "entity",
        rf"(?i)\bWANDB_ENTITY=[\"']?({_NAME})|[\"']entity\\{{0,4}}[\"']:\s{{0,4}}\\{{0,4}}[\"']({_NAME})",
        in_place=True,
    ),
    Label("group", "logged_in_as", rf"\blogged in as: [\w.-]{{1,60}} \(({_NAME})\)", in_place=True),
    Label("group", "wandb.ai swanlab.cn", rf"(?:wandb\.ai|swanlab\.cn(?:/@)?)/({_NAME})/", in_place=True),
    Label(
        "group",
        "account",
        rf"(?i)(?<![a-z])(?:\w{{0,20}}job_account|slurm_account|--account|account)=({_NAME})"
        rf"|--account[ =]({_NAME})",
        in_place=True,
    ),
    Label(
        "group",
        "sbatch srun salloc",
        rf"\b(?:sbatch|srun|salloc)\b[^\n]{{0,200}}?\s-A[ =]?({_NAME})",
        in_place=True,
    ),
    Label(
        "group",
        "namespace kubectl helm",
        r"(?i)\bnamespace\\{0,4}[\"']?[:=]\s{0,4}\\{0,4}[\"']?([a-z][\w-]{2,62})|\b(?:kubectl"
        r"|helm)\b[^\n]{0,200}?\s(?:-n|--namespace)[ =]([a-z][\w-]{2,62})",
        in_place=True,
    ),
    Label("group", ".svc", r"(?<![\w-])[\w-]{1,63}\.([a-z][\w-]{1,62})\.svc(?![\w-])", in_place=True),
    Label(
        "group",
        "s3: s3a: s3n: gs: oss: tos: cos: obs: bos: ks3: cosn: minio: jfs: juicefs: hdfs: wasb: abfs",
        rf"(?i)\b(?:s3[an]?|gs|oss|tos|cosn?|obs|bos|ks3|minio|jfs|juicefs|hdfs|wasbs?|abfss?)://({_HOST})",
        in_place=True,
    ),
    Label(
        "group",
        "abfs wasb",
        rf"(?i)\b(?:abfss?|wasbs?)://[^\s/]{{1,100}}@({_HOST}?)(?=\.dfs|\.blob)",
        in_place=True,
    ),
    Label(
        "group",
        "amazonaws.com aliyuncs.com myqcloud.com volces.com myhuaweicloud.com bcebos.com",
        r"(?i)://([a-z0-9][\w.-]{1,62}?)\.(?:s3|oss|cos|obs|tos|bj)[.-][\w.-]{0,60}(?:amazonaws|aliyuncs"
        r"|myqcloud|volces|myhuaweicloud|bcebos)\.com",
        in_place=True,
    ),
    Label(
        "group",
        "storage.googleapis amazonaws.com",
        r"(?i)://(?:storage\.googleapis|s3[\w.-]{0,60}\.amazonaws)\.com/([a-z0-9][\w.-]{1,62})",
        in_place=True,
    ),
    Label(
        "group",
        ".aliyuncs.com ghcr.io docker.io nvcr.io quay.io .tencentyun.com .volces.com",
        r"(?i)(?<![\w-])(?:(?:cr|registry)[\w.-]{0,60}\.(?:aliyuncs|volces)\.com"
        r"|\w{0,20}ccr\.ccs\.tencentyun\.com|ghcr\.io|docker\.io|quay\.io)/([\w.-]{2,62})(?=/)",
        in_place=True,
    ),
    Label(
        "group",
        ".dkr.ecr arn:",
        r"(?<!\d)(\d{12})(?=\.dkr\.ecr)|\barn:aws[\w-]{0,10}:\w{1,40}:[\w-]{0,20}:(\d{12}):",
        in_place=True,
    ),
    Label("group", "--project gcloud", r"\bgcloud\b[^\n]{0,200}?--project[ =]([a-z][\w-]{3,40})", in_place=True),
    Label(
        "group",
        "/resourcegroups/ /subscriptions/",
        rf"(?i)/subscriptions/({_HEX_UUID})|/resourceGroups/([\w.-]{{2,90}})",
        in_place=True,
    ),
    Label(
        "group",
        ".slack.com .feishu.cn .larksuite .atlassian.net .sharepoint.com .notion.site .lightning.ai",
        r"(?i)://([a-z0-9][\w-]{1,62})\.(?:slack\.com|feishu\.cn|larksuite\.com|atlassian\.net"
        r"|sharepoint\.com|notion\.site)",
        in_place=True,
    ),
    Label(
        "group",
        "github gitlab gitee bitbucket huggingface hf-mirror modelscope codeup",
        r"(?i)(?:github\.com|gitlab\.com|gitee\.com|bitbucket\.org|huggingface\.co|hf-mirror\.com"
        r"|modelscope\.cn)[/:](?:datasets/|spaces/|models/)?([\w.-]{2,62})(?=/)",
        in_place=True,
    ),
    Label(
        "group",
        "/group- :group-",
        r"[/:]group-\d{1,6}/([\w.-]{2,100}?)(?=\.git|[/\s\"'<>)#?,;&\]\\]|$)",
        in_place=True,
    ),
)
