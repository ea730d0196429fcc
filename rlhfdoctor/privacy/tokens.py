"""Tokens that their own form identifies: what each service puts before a key or inside it, what follows.

A form is looked for only where its marker stands, and is compiled when that happens first: a text without tokens
costs one search of a fixed word for each marker, and an import costs a tuple.
"""

from __future__ import annotations

import functools
import re

from rlhfdoctor.privacy.sheet import Find, Sheet

_DIGIT = r"(?=[A-Za-z_-]{0,60}\d)"
"""For short prefixes: what follows has a digit, which names in code seldom have that early."""
_DIGIT_SOON = r"(?=[A-Za-z_-]{0,100}\d)"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_END = r"(?![A-Za-z0-9_-])"

PREFIXED: tuple[tuple[str, str, str], ...] = (
    # models and training
    ("Hugging Face", "hf_", r"[A-Za-z0-9]{16,}"),
    ("Hugging Face, signed in", "hf_oauth_ hf_jwt_", r"[\w-]{16,}(?:\.[\w-]{8,4096}){0,2}"),
    ("Hugging Face, organization", "api_org_", r"[A-Za-z]{30,}"),
    ("OpenAI and alike", "sk- sk_", _DIGIT_SOON + r"[A-Za-z0-9_-]{16,}"),
    ("OpenAI, session", "sess-", r"[A-Za-z0-9]{40}" + _END),
    ("ModelScope", "ms-", _UUID + _END),
    ("Weights & Biases", "wandb_v1_", r"\w{40,}"),
    ("xAI", "xai-", r"[A-Za-z0-9]{40,}"),
    ("Groq, Replicate", "gsk_ r8_", r"[A-Za-z0-9]{20,}"),
    ("Together", "tgp_v1_", r"[\w-]{32,}"),
    ("Fireworks", "fw_", _DIGIT + r"[A-Za-z0-9]{20,64}" + _END),
    ("Cerebras", "csk-", r"[a-z0-9]{32,}"),
    ("Perplexity", "pplx-", r"[A-Za-z0-9]{32,}"),
    ("Voyage", "pa-", _DIGIT + r"[\w-]{43}" + _END),
    ("Jina", "jina_", r"[0-9a-f]{32}[\w-]{20,}"),
    ("Mailgun", "key-", r"[0-9a-f]{32}" + _END),
    ("NVIDIA", "nvapi-", r"[\w-]{20,}"),
    ("LangSmith", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}"),
    ("LangSmith, older", "ls__", r"[0-9a-f]{32}"),
    ("Tavily", "tvly-", _DIGIT + r"[\w-]{20,}"),
    ("Firecrawl", "fc-", r"[0-9a-f]{32}" + _END),
    ("Pinecone", "pcsk_", r"\w{30,}"),
    ("E2B", "e2b_", r"[0-9a-f]{40}"),
    ("Daytona", "dtn_", r"[0-9a-f]{64}"),
    ("RunPod", "rpa_", r"[A-Z0-9]{30,}\w{0,20}"),
    ("Modal", "ak- as-", _DIGIT + r"(?=[a-z0-9]{0,60}[A-Z])[A-Za-z0-9]{22}" + _END),
    ("Kaggle", "KGAT_", r"[0-9a-f]{32}"),
    ("Databricks", "dapi", r"[0-9a-f]{32}(?:-\d)?" + _END),
    ("Prefect", "pnu_ pnb_", r"[A-Za-z0-9]{36}"),
    ("Langfuse, public", "pk-lf-", _UUID),
    ("Helicone", "pk-helicone- sk-helicone-", r"[\w-]{20,}"),
    # clouds
    ("AWS", "AKIA ASIA ABIA ACCA", r"[0-9A-Z]{16}"),
    ("AWS, older", "A3T", r"[A-Z0-9][A-Z2-7]{16}" + _END),
    ("AWS Bedrock", "ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),
    ("AWS Bedrock, short-lived", "bedrock-api-key-", r"[A-Za-z0-9+/=]{20,}"),
    ("Alibaba", "LTAI", r"[0-9A-Za-z]{12,}"),
    ("Tencent", "AKID", r"[A-Za-z0-9]{13,}"),
    ("Volcengine", "AKLT", r"[\w-]{16,}={0,2}"),
    ("Baidu", "bce-v3/ALTAK-", r"[A-Za-z0-9]{16,}/[0-9a-f]{40}"),
    ("Google", "AIza", r"[\w-]{30,}"),
    ("Google, access", "ya29.", r"[\w-]{16,}(?:\.[\w-]{1,400}){0,16}"),
    ("Google, refresh", "1//0", r"[\w-]{40,}"),
    ("Google, client", "GOCSPX-", r"[\w-]{28,}"),
    ("Google, storage", "GOOG1E", r"[A-Z0-9]{50,}"),
    ("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    ("Heroku", "HRKU-", r"[\w-]{36,}"),
    ("Fly.io", "fo1_", r"[\w-]{43}"),
    ("Fly.io, macaroon", "fm1r_ fm1a_ fm2_", r"[A-Za-z0-9+/=_-]{60,}"),
    ("Supabase", "sbp_ sb_secret_", r"(?:[0-9a-f]{40}|[\w-]{30,})"),
    ("Netlify", "nfp_", r"[A-Za-z0-9]{36,}"),
    ("Neon", "napi_", r"[a-z0-9]{40,}"),
    ("PlanetScale", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{32,64}"),
    ("Scalingo", "tk-us-", r"[\w-]{48}"),
    ("Cloudflare, origin", "v1.0-", r"[0-9a-f]{24}-[0-9a-f]{146}"),
    ("Scaleway", "SCW", r"[A-Z0-9]{17}" + _END),
    # code, packages, delivery
    ("GitHub", "ghp_ gho_ ghu_ ghr_", r"[A-Za-z0-9]{20,}"),
    ("GitHub, installation", "ghs_", r"(?:[A-Za-z0-9]{20,}|\d{1,12}_eyJ[\w.-]{16,})"),
    ("GitHub, fine-grained", "github_pat_", r"\w{20,}"),
    (
        "GitLab",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glwt-",
        r"[\w-]{16,}(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?",
    ),
    ("GitLab, runner", "GR1348941", r"[\w-]{20}"),
    ("Atlassian", "ATATT3 ATCTT3 ATBB", r"[\w=-]{28,}"),
    ("PyPI", "pypi-A", r"[\w-]{20,}"),
    ("npm", "npm_", r"[A-Za-z0-9]{20,}"),
    ("RubyGems", "rubygems_", r"[0-9a-f]{48}"),
    ("crates.io", "cio", r"(?=[a-z0-9]{0,60}[A-Z])(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{32}" + _END),
    ("NuGet", "oy2", r"[a-z0-9]{43}" + _END),
    ("Docker", "dckr_pat_ dckr_oat_", r"[\w-]{16,}"),
    ("JFrog", "AKCp", r"[A-Za-z0-9]{60,}"),
    ("JFrog, reference", "cmVmd", r"[A-Za-z0-9]{40,}={0,2}"),
    ("GitLab, session", "_gitlab_session=", r"[0-9a-z]{32}"),
    ("ClickHouse", "4b1d", r"(?=[a-z0-9]{0,37}[A-Z])[A-Za-z0-9]{38}" + _END),
    ("Harness", "pat. sat.", r"[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}" + _END),
    ("Buildkite", "bkua_", r"[0-9a-z]{40}"),
    ("CircleCI", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9]{22}_[0-9a-f]{40}"),
    ("Sourcegraph", "sgp_ sgd_", r"[0-9A-Fa-f_]{40,}"),
    ("Pulumi", "pul-", r"[0-9a-f]{40}" + _END),
    ("Clojars", "CLOJARS_", r"[0-9a-z]{60}"),
    ("Octopus Deploy", "API-", r"[A-Z0-9]{26}" + _END),
    ("Postman", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    # secrets and networks
    ("Vault", "hvs. hvb. hvr.", r"[\w-]{24,}"),
    ("Vault, older", "s.", r"(?=[a-z0-9]{0,23}[A-Z])(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}" + _END),
    ("Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    ("1Password", "ops_eyJ", r"[A-Za-z0-9+/=_-]{100,}"),
    ("1Password, key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}" + _END),
    ("Authress", "scauth_ authress_", r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[\w+/=-]{30,120}"),
    ("Defined Networking", "dnkey-", r"[\w=-]{26}-[\w=-]{52}"),
    ("age", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    ("Tailscale", "tskey-auth- tskey-api- tskey-client- tskey-scim- tskey-webhook-", r"[\w-]{10,}"),
    ("Infracost", "ico-", r"[A-Za-z0-9]{32}" + _END),
    ("OpenShift", "sha256~", r"[\w-]{43}"),
    ("JSON web token", "eyJ", r"[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096}"),
    # chat, mail, notes
    ("Slack", "xox", r"(?:[abcdeprs](?:\.xox[bp])?-[\w-]{8,}|o-\d[\w-]{9,})"),
    ("Slack, application", "xapp-", r"\d-[A-Za-z0-9]{8,}-\d{8,}-[0-9a-f]{32,}"),
    ("SendGrid", "SG.", r"[\w-]{20,24}\.[\w-]{39,50}"),
    ("Brevo", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("Resend", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{24}" + _END),
    ("Twilio", "SK", r"[0-9a-fA-F]{32}" + _END),
    ("Facebook, page", "EAAM EAAC", r"[A-Za-z0-9]{100,}"),
    ("Frame.io", "fio-u-", r"[\w=-]{64}"),
    ("Dropbox", "sl.", r"(?:u\.)?[\w=-]{130,}"),
    ("Adobe", "p8e-", r"[A-Za-z0-9]{32}" + _END),
    ("42", "s-s4t2ud- s-s4t2af-", r"[0-9a-f]{64}"),
    ("Notion", "ntn_", r"[A-Za-z0-9]{40,}"),
    ("Linear", "lin_api_ lin_oauth_", r"[A-Za-z0-9]{32,}"),
    ("Airtable", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("Typeform", "tfp_", r"[\w-]{40,}"),
    ("ReadMe", "rdme_", r"[a-z0-9]{70}"),
    ("Contentful", "CFPAT-", r"[\w-]{43}"),
    ("Figma", "figd_ figu_", r"[\w-]{40,}"),
    # payments, monitoring
    ("Stripe", "rk_live_ rk_test_ rk_prod_ whsec_", r"[A-Za-z0-9+/]{10,}={0,2}"),
    ("Square", "sq0atp- sq0csp-", r"[\w-]{22,}"),
    ("Square, access", "EAAA", _DIGIT + r"[\w-]{22,60}" + _END),
    ("Flutterwave", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST- FLWPUBK-", r"[A-Za-z0-9]{12,}(?:-X)?"),
    ("Duffel", "duffel_test_ duffel_live_", r"[\w=-]{43}"),
    ("SettleMint", "sm_aat_ sm_pat_ sm_sat_", r"[A-Za-z0-9]{16,}"),
    ("EasyPost", "EZAK EZTK", r"[A-Za-z0-9]{54}"),
    ("Shippo", "shippo_live_ shippo_test_", r"[0-9A-Fa-f]{40}"),
    ("Shopify", "shpat_ shpca_ shppa_ shpss_", r"[0-9A-Fa-f]{32}"),
    ("Grafana", "glc_", r"[A-Za-z0-9+/]{32,}={0,2}"),
    ("Grafana, older", "eyJrIjoi", r"[A-Za-z0-9]{70,}={0,3}"),
    ("Grafana, service", "glsa_", r"[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}"),
    ("Sentry", "sntrys_ sntryu_", r"[\w+/=-]{40,}"),
    ("New Relic", "NRAK- NRJS- NRII-", r"[\w-]{19,}"),
    ("Honeycomb", "hcaik_ hcbik_ hcamk_", r"[a-z0-9]{50,}"),
    ("Dynatrace", "dt0c01. dt0s01. dt0s16.", r"[A-Z2-7]{8,24}\.[A-Z2-7]{64}"),
)
"""Service, what its tokens begin with, and what follows (a part of a regular expression)."""


_RUN = re.compile(r"[\w.~+/=:-]{16,}")
"""Every token is in a run of such letters."""


_WEAK_WORDS = """
sk- sk_ ms- r8_ fw_ csk- pa- fc- ak- as- re_ cio oy2 pat SK SCW API- ico- pul- sess- dapi napi_
ops_eyJ SG. fo1_ 1//0 cmVmd sha256~ v1.0- jina_ e2b_ 4b1d pat. sat. A3T A3- s. sl. p8e- EAAA EAAM EAAC eyJrIjoi
"""
_WEAK = frozenset(_WEAK_WORDS.split())
"""What words or hashes may end in: no token where a letter or a figure stands before it."""


def _begin(start: str = "") -> str:
    """That no word goes on before `start`; escapes (`\\n`, `%3D`) and the codes of colours are no words."""
    return (
        rf"(?:(?<![A-Za-z0-9]{start})|(?<=\\[nrt]{start})|(?<=%[0-9A-Fa-f]{{2}}{start})"
        rf"|(?<=[\[;]\dm{start})|(?<=[\[;]\d\dm{start}))"
    )


def _inner(first: str, rest: str) -> str:
    """A form with its first character apart: a pattern that begins with characters is found faster."""
    return first + _begin(first) + rest + _END


_DIGITS = r"[DTjz][AEIMQUYcgk][w-z0-5]"
"""Three decimal digits in base64, behind a first character of MNO."""
INNER: tuple[tuple[str, str, str], ...] = (
    ("Telegram", ":AA", _inner(r"\d", r"\d{7,9}:AA[\w-]{33}")),
    ("Telegram, address", "/bot", r"(?<=/bot)\d{8,10}:[\w-]{35}" + _END),
    ("Mailchimp", "-us1 -us2 -us3 -us4 -us5 -us6 -us7 -us8 -us9", _inner("[0-9a-f]", r"[0-9a-f]{31}-us\d{1,2}")),
    ("MaxMind", "_mmk", _inner("[A-Za-z0-9]", r"[A-Za-z0-9]{5}_[A-Za-z0-9]{29}_mmk")),
    ("Terraform", ".atlasv1.", _inner("[A-Za-z0-9]", r"[A-Za-z0-9]{13}\.atlasv1\.[\w=-]{60,70}")),
    ("Microsoft Entra", "Q~", _inner(r"[\w~.-]", r"[\w~.-]{2}\dQ~[\w~.-]{31,34}")),
    ("Microsoft, marked keys", "JQQJ9", _inner("[A-Za-z0-9]", r"[A-Za-z0-9]{51}JQQJ9[9D][A-Za-z0-9]{20,32}={0,2}")),
    ("Azure Storage", "+ASt", _inner("[A-Za-z0-9+/]", r"[A-Za-z0-9+/]{75}\+ASt[A-Za-z0-9+/]{6}==")),
    ("Discord", ".", _inner("[MNO]", rf"{_DIGITS}(?:[MNO]{_DIGITS}){{4,5}}\w{{0,3}}\.[\w-]{{6,7}}\.[\w-]{{27,38}}")),
)
"""The same for tokens with their mark inside: service, mark, and the whole regular expression."""


def cut_tokens(sheet: Sheet, cut: Find) -> None:
    """Makes the changes that `cut` wants for each token.

    >>> sheet = Sheet("login with hf_abcdefghijklmnop now")
    >>> cut_tokens(sheet, lambda match: [(*match.span(), "[secret]")])
    >>> sheet.text
    'login with [secret] now'
    """
    runs = "\n".join(_RUN.findall(sheet.text))
    for marker, prefixed, form in _forms():
        if marker in runs:
            sheet.edit(_compiled(marker, prefixed, form), cut)


@functools.cache
def _forms() -> tuple[tuple[str, bool, str], ...]:
    """Marker, whether a token begins with it, and the form: one for each marker, `lsv2_sk_` before `sk_`."""
    prefixed = ((marker, True, form) for _, markers, form in PREFIXED for marker in markers.split())
    longest_first = sorted(prefixed, key=lambda row: -len(row[0]))
    return (*longest_first, *((marker, False, form) for _, markers, form in INNER for marker in markers.split()))


@functools.cache
def _compiled(marker: str, prefixed: bool, form: str) -> re.Pattern[str]:
    """A form as a pattern; one with a prefix begins with that, so that it is found as fast as the word."""
    start = re.escape(marker)
    bounded = start + _begin(start) if marker in _WEAK else start
    return re.compile(bounded + form if prefixed else form)
