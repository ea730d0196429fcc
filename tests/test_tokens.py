"""Tokens by their forms: made here from the form, so that no key is in the repository."""

from __future__ import annotations

import random
import re
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.privacy import secrets, tokens
from rlhfdoctor.privacy.redact import Redactor

ROOT = Path(__file__).resolve().parent.parent
LETTERS = {
    "A": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "a": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "T": string.ascii_uppercase + "234567",
    "h": string.hexdigits[:16],
    "d": string.digits,
    "b": string.ascii_letters + string.digits + "-_",
    "B": string.ascii_letters + string.digits + "+/",
}
UUID = "{h8}-{h4}-{h4}-{h4}-{h12}"
DIGITS = "MTIz"  # "123" in base64
FORMS = {
    "Hugging Face": ("hf_{L34}",),
    "Hugging Face, signed in": ("hf_oauth_eyJ{b60}.{b200}.{b43}", "hf_jwt_eyJ{b60}.{b200}.{b43}"),
    "Hugging Face, organization": ("api_org_{L34}",),
    "OpenAI and alike": (
        "sk-{A48}",
        "sk-proj-{b60}T3BlbkFJ{b60}",
        "sk-svcacct-{b60}",
        "sk-ant-api03-{b93}AA",
        "sk-or-v1-{h64}",
        "sk-lf-" + UUID,
        "sk_live_{A24}",
    ),
    "OpenAI, session": ("sess-{A40}",),
    "ModelScope": ("ms-" + UUID,),
    "Weights & Biases": ("wandb_v1_{A77}",),
    "xAI": ("xai-{A80}",),
    "Mailgun": ("key-{h32}",),
    "Groq, Replicate": ("gsk_{A52}", "r8_{A37}"),
    "Together": ("tgp_v1_{b43}",),
    "Fireworks": ("fw_{A10}7{A11}", "fw_3{A23}"),
    "Cerebras": ("csk-{a48}",),
    "Perplexity": ("pplx-{A48}",),
    "Voyage": ("pa-{A20}7{A22}",),
    "Jina": ("jina_{h32}{b28}",),
    "NVIDIA": ("nvapi-{b64}",),
    "LangSmith": ("lsv2_pt_{h32}_{h10}", "lsv2_sk_{h32}_{h10}"),
    "LangSmith, older": ("ls__{h32}",),
    "Tavily": ("tvly-{A16}7{A15}", "tvly-dev-4{A31}"),
    "Firecrawl": ("fc-{h32}",),
    "Pinecone": ("pcsk_{A6}_{A63}",),
    "E2B": ("e2b_{h40}",),
    "Daytona": ("dtn_{h64}",),
    "RunPod": ("rpa_{U40}{a6}",),
    "Modal": ("ak-7{A20}Q", "as-Q{A20}7"),
    "Kaggle": ("KGAT_{h32}",),
    "Databricks": ("dapi{h32}", "dapi{h32}-2"),
    "Prefect": ("pnu_{A36}",),
    "Langfuse, public": ("pk-lf-" + UUID,),
    "Helicone": ("pk-helicone-{b20}", "sk-helicone-{b20}"),
    "AWS": ("AKIA{U16}", "ASIA{U16}"),
    "AWS Bedrock": ("ABSK{B128}",),
    "AWS Bedrock, short-lived": ("bedrock-api-key-{A120}",),
    "Alibaba": ("LTAI5t{A18}", "LTAI{A12}"),
    "Tencent": ("AKID{A32}",),
    "Volcengine": ("AKLT{A16}", "AKLT{A43}"),
    "Baidu": ("bce-v3/ALTAK-{A21}/{h40}",),
    "Google": ("AIza{b35}",),
    "Google, access": ("ya29.{b120}",),
    "Google, refresh": ("1//0{b60}",),
    "Google, client": ("GOCSPX-{b28}",),
    "Google, storage": ("GOOG1E{U55}",),
    "DigitalOcean": ("dop_v1_{h64}",),
    "Heroku": ("HRKU-" + UUID, "HRKU-AA{b58}"),
    "Fly.io": ("fo1_{b43}",),
    "Fly.io, macaroon": ("fm2_{B120}",),
    "Supabase": ("sbp_{h40}", "sb_secret_{b31}"),
    "Netlify": ("nfp_{A36}",),
    "Neon": ("napi_{a64}",),
    "PlanetScale": ("pscale_tkn_{b43}", "pscale_pw_{b43}"),
    "Scalingo": ("tk-us-{b48}",),
    "Cloudflare, origin": ("v1.0-{h24}-{h146}",),
    "Scaleway": ("SCW{U17}",),
    "GitHub": ("ghp_{A36}", "gho_{A36}", "ghu_{A36}", "ghr_{A76}"),
    "GitHub, installation": ("ghs_{A36}", "ghs_{d7}_eyJ{b40}.{b60}.{b86}"),
    "GitHub, fine-grained": ("github_pat_{A22}_{A59}",),
    "GitLab": ("glpat-{b20}", "glpat-{b27}.01.{a9}", "gldt-{b20}", "glcbt-1a_{b20}", "glrt-{b20}"),
    "GitLab, runner": ("GR1348941{b20}",),
    "Atlassian": ("ATATT3xFfGF0{b170}={h8}", "ATBB{A32}"),
    "PyPI": ("pypi-AgEIcHlwaS5vcmc{b120}",),
    "npm": ("npm_{A36}",),
    "RubyGems": ("rubygems_{h48}",),
    "crates.io": ("cioQ7{A30}",),
    "NuGet": ("oy2{a43}",),
    "Docker": ("dckr_pat_{b27}", "dckr_oat_{b32}"),
    "JFrog": ("AKCp{A69}",),
    "JFrog, reference": ("cmVmdGtuOj{A54}",),
    "Buildkite": ("bkua_{h40}",),
    "CircleCI": ("CCIPAT_{A22}_{h40}",),
    "Sourcegraph": ("sgp_{h40}", "sgp_{h16}_{h40}"),
    "Pulumi": ("pul-{h40}",),
    "Clojars": ("CLOJARS_{a60}",),
    "Octopus Deploy": ("API-{U26}",),
    "Postman": ("PMAK-{h24}-{h34}",),
    "Vault": ("hvs.{b90}",),
    "Doppler": ("dp.pt.{A43}", "dp.st.dev.{A43}"),
    "1Password": ("ops_eyJ{b400}",),
    "age": ("AGE-SECRET-KEY-1{U58}",),
    "Tailscale": ("tskey-auth-{A12}CNTRL-{A32}", "tskey-api-{A12}CNTRL-{A32}"),
    "Infracost": ("ico-{A32}",),
    "OpenShift": ("sha256~{b43}",),
    "JSON web token": ("eyJ{b33}.{b200}.{b43}",),
    "Slack": ("xoxb-{d12}-{d13}-{A24}", "xoxe.xoxp-1-{A160}", "xoxe-1-{A140}", "xoxo-{d12}-{A24}"),
    "Slack, application": ("xapp-1-A{U10}-{d13}-{h64}",),
    "SendGrid": ("SG.{b22}.{b43}",),
    "Brevo": ("xkeysib-{h64}-{A16}",),
    "Resend": ("re_{A8}_{A24}",),
    "Twilio": ("SK{h32}",),
    "Notion": ("ntn_{A46}",),
    "Linear": ("lin_api_{A40}",),
    "Airtable": ("pat{A14}.{h64}",),
    "Typeform": ("tfp_{b44}_{b14}",),
    "ReadMe": ("rdme_{a70}",),
    "Contentful": ("CFPAT-{b43}",),
    "Figma": ("figd_{b40}",),
    "Stripe": ("rk_live_{A24}", "whsec_{A32}"),
    "Square": ("sq0atp-{b22}", "sq0csp-{b43}"),
    "EasyPost": ("EZAK{A54}", "EZTK{A54}"),
    "Shippo": ("shippo_live_{h40}",),
    "Shopify": ("shpat_{h32}",),
    "Grafana": ("glc_{A80}",),
    "Grafana, service": ("glsa_{A32}_{h8}",),
    "Sentry": ("sntryu_{h64}", "sntrys_eyJ{b120}_{A43}"),
    "New Relic": ("NRAK-{U27}",),
    "Honeycomb": ("hcaik_{a58}",),
    "Dynatrace": ("dt0c01.{T24}.{T64}",),
    "Telegram": ("{d10}:AA{A33}",),
    "AWS, older": ("A3TX{T16}",),
    "Vault, older": ("s.{A12}7Q{A10}",),
    "Grafana, older": ("eyJrIjoi{A90}==",),
    "GitLab, session": ("_gitlab_session={a32}",),
    "ClickHouse": ("4b1d{A30}Q{A7}",),
    "Harness": ("pat.{b22}.{A24}.{A20}", "sat.{b22}.{A24}.{A20}"),
    "1Password, key": ("A3-{U6}-{U6}-{U5}-{U5}-{U5}-{U5}", "A3-{U6}-{U11}-{U5}-{U5}-{U5}"),
    "Authress": ("scauth_{a12}.{a5}.acc-{a12}.{A60}", "authress_{a12}.{a5}.acc_{a12}.{A60}"),
    "Defined Networking": ("dnkey-{b26}-{b52}",),
    "Facebook, page": ("EAAM{A120}", "EAAC{A120}"),
    "Frame.io": ("fio-u-{b64}",),
    "Dropbox": ("sl.u.{b140}", "sl.{b140}"),
    "Adobe": ("p8e-{A32}",),
    "42": ("s-s4t2ud-{h64}", "s-s4t2af-{h64}"),
    "Square, access": ("EAAA{A20}7{b37}",),
    "Flutterwave": ("FLWSECK_TEST-{h32}-X", "FLWPUBK-{h32}-X"),
    "Duffel": ("duffel_test_{b43}", "duffel_live_{b43}"),
    "SettleMint": ("sm_aat_{A16}", "sm_pat_{A20}"),
    "MaxMind": ("{A6}_{A29}_mmk",),
    "Telegram, address": ("{d9}:{A35}",),
    "Mailchimp": ("{h32}-us12", "{h32}-us6"),
    "Terraform": ("{A14}.atlasv1.{A67}",),
    "Microsoft Entra": ("{A3}8Q~{A34}",),
    "Microsoft, marked keys": ("{A52}JQQJ99{A26}",),
    "Azure Storage": ("{A76}+ASt{A6}==",),
    "Discord": (DIGITS * 6 + ".G{b5}.{b38}", DIGITS * 6 + "MQ.{b6}.{b27}"),
}
"""Service -> the forms of its tokens: `{A48}` is 48 of the letters A."""
CONTAINERS = {
    "plain": "worker 3 got {} and went on",
    "flag": "python t.py --note={} --lr 1e-6",
    "word": "python t.py --note {} --lr 1e-6",
    "yaml": "  note: {}\n  steps: 3\n",
    "json": '{{"note": "{}", "steps": 3}}',
    "nested json": '"{{\\"note\\": \\"{}\\"}}"',
    "address": "GET https://host.example.com/v1/x?note={}&n=3",
    "environment": "export NOTE={}\nexport N=3\n",
    "quoted": "NOTE='{}' python t.py",
    "escaped": "first\\n{}\\nlast",
    "percent": "note%3D{} n",
    "coloured": "\x1b[32m{}\x1b[0m done",
    "chinese": "令牌是{}，不要外传",
}
IDS = (
    "commit 816344d0c1f2a3b4c5d6e7f8091a2b3c4d5e6f70",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
    "md5 d41d8cd98f00b204e9800998ecf8427e d41d8cd98f00b204e9800998ecf8427e-us",
    "run 3f2504e0-4f89-41d3-9a0c-0305e82c3301 GPU-3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "NodeID 4f0c9e6f2a7b8c1d3e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071 actor 0123456789abcdef0123456701000000",
    "job_id=02000000 worker_id=28cf5b1d60a7e3f4c2b1a0987654",
    "ObjectRef(00ffffffffffffffffffffffffffffffffffffff0100000001e1f505)",
    "NCCL INFO comm 0x55d5c8a0 rank 0 nranks 8 cudaDev 0 busId 18000 commId 0x7f3b9a8c5d4e3f21",
    "docker-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.scope",
    "kubepods-burstable-pod3f2504e0_4f89_41d3_9a0c_0305e82c3301.slice",
    "trainer-ms-7d9f8b6c5d-x2k4q ms-swift==3.2.0 fw_attention_forward_kernel_sm90_hdim128",
    "hf_model_config.json hf_hub_download sk-learn re_compile_with_options pa-llama-2-7b fc-layer-000 as-is-20",
    "step 12345678:AA loss 0.12 at 12:01:02 cio_pool_size=32 oy2 SCW Q~ -us1 JQQJ9 1//0",
    "--use_stack_chunk -us12 region us-east-1 eyJ. xoxo-hugs-and-kisses",
    "/root/.triton/cache/fxgraph/f7mwsnzzkmrpdp3c5ckmgklgu4ovjqyipvoeswvrvjxzyqtyfrlp",
    "torch_compile_debug/run_2026_01_31_12_00_00_123456-pid_4242/torchinductor",
)


def make(form: str, seed: object = 0) -> str:
    """A token of a form."""
    chance = random.Random(f"{form} {seed}")

    def some(match: re.Match[str]) -> str:
        letters = LETTERS[match[1]]
        return "".join(chance.choice(letters) for _ in range(int(match[2]) - 1)) + chance.choice(
            letters.replace("-", "").replace("_", "")
        )

    return re.sub(r"\{(\w)(\d+)\}", some, form)


CASES = [(service, form) for service, forms in FORMS.items() for form in forms]


def test_every_service_has_its_forms_here() -> None:
    """And the other way round."""
    assert {service for service, _, _ in (*tokens.PREFIXED, *tokens.INNER)} == set(FORMS)


@pytest.mark.parametrize("container", CONTAINERS)
def test_tokens_are_cut(container: str) -> None:
    """The token, all of it, and nothing beside it, by its form alone: no name says that it is a secret."""
    for service, form in CASES:
        around = CONTAINERS[container]
        at = "https://api.telegram.org/bot{}/sendMessage" if service == "Telegram, address" else "{}"
        text = around.format(at.format(make(form, container)))
        assert secrets.cut_secrets(text) == around.format(at.format(secrets.SECRET)), (service, form)


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_door_cuts_them(container: str) -> None:
    """What the recorder stores of a command, and what a bundle holds."""
    for service, form in CASES:
        token = make(form, container)
        before = "bot" if service == "Telegram, address" else ""
        text = CONTAINERS[container].format(f"/{before}{token}" if before else token)
        doors = (secrets.cut_line(text), str(secrets.cut_words(text.split(" "))), Redactor().text(text))
        for shown in (*doors, str(Redactor().value({"argv": text.split(" "), "note": text}))):
            assert token not in shown and token[-12:] not in shown, (service, form)


@pytest.mark.parametrize("text", IDS, ids=range(len(IDS)))
def test_ids_and_names_stay(text: str) -> None:
    """What a diagnosis is read by: hashes, ids of Ray, NCCL and containers, and names that begin like a token."""
    assert secrets.cut_secrets(text) == secrets.cut_line(text) == text


def hostile(service: str, marker: str) -> Iterator[str]:
    """What may be said again and again: the marker, a token that never ends, and one that lacks its last letters."""
    yield from (marker, f"{marker} ", f"{marker}.", f"\n{marker}")
    for form in FORMS[service]:
        token = make(form)
        yield from (token[:-1], f"{token[: len(token) // 2]} ", f"{token[:-3]}!", f"/bot{token[:-1]}!")


def seconds(pattern: re.Pattern[str], text: str) -> float:
    """One search through all of a text: the thread's own time, without what others take."""
    start = time.thread_time_ns()
    pattern.sub("", text)
    return (time.thread_time_ns() - start) / 1e9


def grows(pattern: re.Pattern[str], word: str, *, begin: str = "") -> bool:
    """Whether eight times the length takes far more than eight times as long, in each of five tries."""
    short, long = (begin + word * (size // len(word) + 1) for size in (4096, 8 * 4096))
    return all(seconds(pattern, long) > 30 * seconds(pattern, short) for _ in range(5))


@pytest.mark.parametrize("service", FORMS)
def test_no_form_grows_faster_than_its_line(service: str) -> None:
    """On lines made against it: its own marker and unfinished tokens, and one letter behind a marker for ever."""
    for name, markers, form in (*tokens.PREFIXED, *tokens.INNER):
        for marker in markers.split() if name == service else ():
            pattern = tokens._compiled(marker, (name, markers, form) in tokens.PREFIXED, form)
            assert not [word for word in hostile(service, marker) if grows(pattern, word)]
            assert not [letter for letter in "aA0-_./=M" if grows(pattern, letter, begin=marker)]


def test_lines_without_a_name_are_passed_over() -> None:
    """Names are looked for in single lines, and found as in the whole text."""
    text = "a\n\napi_key: Zq7abcdefgh\r\nb\ntoken=Zq7abcdefgh token: Zq7abcdefgh\n密码：Zq7abcdefgh"
    for piece in (text, f"{text}\n", f"\n{text}", f"{text}\n\nlast"):
        shown = secrets.cut_secrets(piece)
        assert "Zq" not in shown and shown.count(secrets.SECRET) == 4
        assert shown.replace(secrets.SECRET, "Zq7abcdefgh") == piece


def test_an_import_compiles_no_form() -> None:
    """The recorder runs beside the job: a form costs nothing until its marker is seen."""
    code = (
        "from rlhfdoctor.privacy import secrets, tokens; print(tokens._compiled.cache_info().currsize);"
        "secrets.cut_line('python -m x --lr 3'); print(tokens._compiled.cache_info().currsize);"
        "secrets.cut_line('python -m x --note hf_' + 'a' * 20); print(tokens._compiled.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "1"]


STRONG = ("hf_{a34}", "ghp_{a36}", "xoxb-{d12}-{a12}", "glpat-{a20}", "npm_{a36}", "AKIA{u16}")


@pytest.mark.parametrize("before", ["_", "user_", "run1_", "__", "-", "cache-", "x.", "x", "1", "0x", "id"])
def test_a_word_before_a_token_hides_nothing(before: str) -> None:
    """Folders and variables are named after what they hold: `cache-hf_...`, `user_ghp_...`."""
    for form in STRONG:
        token = _made(form)
        assert secrets.cut_secrets(f"loading {before}{token} now") == f"loading {before}{secrets.SECRET} now"


@pytest.mark.parametrize(
    "inside", ["\u200b", "\xad", "\ufeff", "\0", "\x08", "\x1b]0;title\x07", "\x1b[0m", "\\\n"], ids=repr
)
def test_what_is_not_seen_hides_nothing(inside: str) -> None:
    """Letters without a width, controls, a terminal's title, a shell's line that goes on."""
    for form in STRONG:
        token = _made(form)
        shown = secrets.cut_secrets(f"a line\nuse {token[:9]}{inside}{token[9:]} here\nthe next\n")
        assert token[-8:] not in shown and token[4:9] not in shown
        assert ("a line\n" in shown, "the next\n" in shown) == (True, True)


def test_utf16_behind_utf8() -> None:
    """As PowerShell appends to a log: a NUL behind each letter."""
    token = _made(STRONG[0])
    text = "start\n" + f"HF_TOKEN={token}\n".encode("utf-16-le").decode("latin-1") + "end\n"
    assert token not in secrets.cut_secrets(text).replace("\0", "")


@pytest.mark.parametrize("text", ["task-some-long-name-here-and-more", "disk_sk_learn_pipeline_long_name", "risk-management-framework-v2"])
def test_words_stay(text: str) -> None:
    """What ends in letters with which a token begins."""
    assert secrets.cut_secrets(text) == text


def _made(form: str) -> str:
    chance = random.Random(form)
    letters = {"a": string.ascii_letters + string.digits, "d": string.digits, "u": string.ascii_uppercase + string.digits}
    return re.sub(r"\{(\w)(\d+)\}", lambda m: "".join(chance.choice(letters[m[1]]) for _ in range(int(m[2]))), form)
