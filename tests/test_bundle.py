"""`doctor bundle`: nothing that identifies or opens doors leaves, and the verdict is the same."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.core.bundle import Bundle, _Writer, make_bundle
from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.trace.read import read_node
from tests.record.build import event, kernel_lines, write_run

ROOT = Path(__file__).resolve().parents[1]
SECRETS = {
    "hugging face": "hf_QwErTyUiOpAsDfGhJkLzXcVbNm",
    "openai": "sk-proj-9aB8cD7eF6gH5iJ4kL3mN2",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "wandb": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    "password": "hunter2-Tr0ub4dor",
    "url": "s3cr3tpass",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "aliyun": "LTAI5tAbCdEfGhIjKlMnOpQr",
}
PLANTED = """export HF_TOKEN={hugging face}
export OPENAI_API_KEY="{openai}"
git clone https://oauth2:{url}@gitlab.acme-corp.internal/alice/proj.git  # {github}
AWS_ACCESS_KEY_ID={aws} AWS_SECRET_ACCESS_KEY={aws secret}
wandb login --wandb_api_key {wandb}
{{"password": "{password}", "jwt": "{jwt}"}}
Authorization: Bearer {jwt}
ALIBABA_CLOUD_ACCESS_KEY_ID={aliyun}
""".format(**SECRETS)
IDENTITY = ("alice", "gpu-node-17", "10.20.30.41", "alice@acme-corp.example", "projectx", "2001:db8:aa:bb:cc:dd:ee:ff")
NAMED = """USER=alice
(alice) [alice@gpu-node-17 proj]$ cd /home/alice/projectx && hostname
Nov 21 16:27:36 gpu-node-17 kernel: something
raylet at 10.20.30.41:6379, mail alice@acme-corp.example, fd at 2001:db8:aa:bb:cc:dd:ee:ff
loaded /data/projectx/models/Qwen2.5-7B and /usr/lib/python3/dist-packages/torch/x.py
"""


def unpacked(path: Path) -> dict[str, bytes]:
    """Name -> bytes of every member."""
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """An incident whose files hold every kind of name and secret, also in a compressed log and in file names."""
    folder = tmp_path / "in"
    shutil.copytree(ROOT / "samples/openrlhf-save-kill/run", folder)
    script = folder / "launch.sh"
    script.write_text(script.read_text() + PLANTED)
    with (folder / "driver.log").open("a") as log:
        log.write(PLANTED + NAMED)
    (folder / "worker-10.20.30.41.log").write_text(NAMED)
    (folder / "old.log.gz").write_bytes(gzip.compress((PLANTED + NAMED).encode()))
    return folder


def test_no_secret_and_no_name_leaves(planted: Path, tmp_path: Path) -> None:
    """A scan of all members and their names finds none; and the verdict is that of the source."""
    made = make_bundle([str(planted)], tmp_path / "b.tar.gz", hide=["projectx"])
    members = unpacked(made.path)
    everything = b"\n".join([*members.values(), *(name.encode() for name in members)])
    assert [kind for kind, secret in SECRETS.items() if secret.encode() in everything] == []
    assert [name for name in IDENTITY if name.encode() in everything] == []
    assert made.same and made.changes["secret"] >= 3 * len(SECRETS)
    assert b"Qwen2.5-7B" in everything and b"/usr/lib/python3/dist-packages/torch/x.py" in everything


def test_the_packed_bytes_hold_nothing_either(planted: Path, tmp_path: Path) -> None:
    """Neither does the archive's own header: no owner, no path of this machine."""
    made = make_bundle([str(planted)], tmp_path / "b.tar.gz")
    plain = gzip.decompress(made.path.read_bytes())
    assert str(tmp_path).encode() not in plain
    with tarfile.open(made.path) as archive:
        assert {(member.uname, member.uid) for member in archive} == {("", 0)}


def test_tokens_are_the_same_everywhere(planted: Path, tmp_path: Path) -> None:
    """One host is one token in logs, file names and the kernel's lines; two addresses are two."""
    (planted / "other.log").write_text("ip=10.20.30.42 ip=10.20.30.41 on gpu-node-17\n")
    members = unpacked(make_bundle([str(planted)], tmp_path / "b.tar.gz").path)
    text = {name.rpartition("/")[2]: data.decode() for name, data in members.items()}
    first, second = re.findall(r"ip=(\S+)", text["other.log"])
    assert first != second
    assert any(name == f"worker-{second}.log" for name in text), "an address stays an address"
    host = re.search(r"on (host-\d+)", text["other.log"])
    assert host is not None and host[1] in text["driver.log"]


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(path.parent.name for path in (ROOT / "samples").glob("*/run")))
def test_same_verdict(name: str, tmp_path: Path) -> None:
    """Of every sample, with or without a trace, healthy or not."""
    made = make_bundle([str(ROOT / "samples" / name / "run")], tmp_path / "b.tar.gz")
    assert made.same
    names = [file["name"] for file in json.loads(unpacked(made.path)["MANIFEST.json"])["taken"]]
    assert len(names) == len(made.files) - 1 and all(not part.startswith("/") for part in names)


def test_traces_are_redacted_and_readable(tmp_path: Path) -> None:
    """Events lose names and secrets, figures stay, and damage in a segment does not hide what is behind it."""
    events = [
        event(
            "process.named",
            1,
            uid=1,
            pid=1001,
            name="python",
            command=f"python t.py --hf_token {SECRETS['hugging face']} --out /home/alice/x/y",
        )
    ]
    run = write_run(
        tmp_path / "run",
        90,
        use=lambda t: 4000.0,
        anon={"actor": lambda t: 1000.0 + t},
        events=events,
        run={"host": "gpu-node-17", "cwd": "/home/alice/x"},
        node="gpu-node-17",
    )
    (run / "logs" / "kernel.log").write_text(kernel_lines(89.5, 1001))
    made = make_bundle([str(run)], tmp_path / "b.tar.gz")
    members = unpacked(made.path)
    everything = b"\n".join(members.values())
    assert not [word for word in (SECRETS["hugging face"], "alice", "gpu-node-17") if word.encode() in everything]
    (tmp_path / "again").mkdir()
    for name, data in members.items():
        target = tmp_path / "again" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    one, two = read_node(run), read_node(tmp_path / "again" / "0-run")
    assert (
        one.times_ns == two.times_ns
        and one.tables["process"].values["rss_anon_bytes"] == two.tables["process"].values["rss_anon_bytes"]
    )
    assert made.same


@pytest.mark.sweep
def test_long_logs_lose_their_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and tail stay, overlong lines are cut, and the manifest says how much is missing."""
    monkeypatch.setattr("rlhfdoctor.core.bundle._HEAD_BYTES", 100_000)
    monkeypatch.setattr("rlhfdoctor.core.bundle._TAIL_BYTES", 200_000)
    folder = tmp_path / "in"
    shutil.copytree(ROOT / "samples/openrlhf-save-kill/run", folder)
    filler = "".join(f"line {number} of progress\n" for number in range(200_000))
    (folder / "big.log").write_text("first line\n" + filler + "x" * 3_000_000 + "\nlast line\n")
    made = make_bundle([str(folder)], tmp_path / "b.tar.gz")
    text = next(data for name, data in unpacked(made.path).items() if name.endswith("big.log")).decode()
    assert text.startswith("first line\n") and text.endswith("last line\n") and "bytes left out here" in text
    assert len(text) < 4_000_000 and made.same
    assert sum("big.log" in what for what in made.cut) == 2


@pytest.mark.parametrize(
    "text",
    [
        "max_new_tokens=1024 pad_token_id=151643 eos_token: <|im_end|>",
        "nvidia-cublas-cu12==12.4.5.8",
        "tokens per second: 1234567",
        "NCCL version 2.21.5+cuda12.4",
        "num_tokens 123456 token_level_scores",
        "listening on 127.0.0.1:8000 and 0.0.0.0",
        'File "/usr/lib/python3.11/re.py", line 4',
        "password=$PASSWORD token=${HF_TOKEN}",
        "tokenizer_path=None secret=None",
        "2026-11-21 16:27:36,871 INFO worker.py:1405 -- x",
        "12:34:56:78",
        "--key_length 128000",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Versions, counts of tokens, loopback addresses, system paths and variables are needed to understand a run."""
    redactor = Redactor()
    redactor.learn(text)
    assert redactor.text(text) == text


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items())
def test_each_kind_of_secret(kind: str, secret: str) -> None:
    """Is taken out where programs print it: as a variable, a flag, JSON, a header or a URL."""
    redactor = Redactor()
    shapes = [
        f"export MY_API_KEY={secret}",
        f"--api-key {secret}",
        f'{{"secret_key": "{secret}"}}',
        f"Authorization: Bearer {secret}",
        f"https://u:{secret.replace('/', '')}@h/x",
        f"password: '{secret}'",
    ]
    assert [shape for shape in shapes if secret in redactor.text(shape)] == []


def test_command(doctor: Callable[..., Any], planted: Path, tmp_path: Path) -> None:
    """The screen tells what was changed; an archive that exists is not written over."""
    out = tmp_path / "b.tar.gz"
    result = doctor("bundle", planted, "--out", out, "--hide", "projectx")
    assert result.exit_code == 0
    for part in (
        "users have tokens",
        "keys, tokens or passwords were taken out",
        "same verdict as its source: cause (host-container-limit)",
        "look through it",
    ):
        assert part in result.stdout
    size = out.stat().st_size
    again = doctor("bundle", planted, "--out", out)
    assert (again.exit_code, "File exists" in again.stderr, out.stat().st_size) == (2, True, size)


def test_reading_a_hostile_archive(tmp_path: Path) -> None:
    """Names that lead out of the archive, links and devices write nothing; what is readable is read."""
    path = tmp_path / "evil.tar.gz"
    run = ROOT / "samples/lab-pinned-start/run"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(run, "run")
        for name in ("../../evil.txt", "/tmp/rlhfdoctor-evil.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("run/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    incident = analyze([str(path)])
    assert incident.findings[0].cause == "host-pinned-offload"
    assert sum("leads out of the archive" in str(gap.why) for gap in incident.gaps) == 2
    assert not Path("/tmp/rlhfdoctor-evil.txt").exists() and not list(tmp_path.parent.glob("evil.txt"))
    assert all("passwd" not in str(gap.what) for gap in incident.gaps)


@pytest.mark.parametrize("date", ["inf", "nan", "-inf", "1e300", "1e18", "-5"])
def test_a_date_that_is_none(tmp_path: Path, date: str) -> None:
    """A PAX header can date a member by any number: what is no date costs neither the member nor the bundle."""
    source = tmp_path / "in.tar"
    with tarfile.open(source, "w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted((ROOT / "samples/lab-pinned-start/run").rglob("*")):
            if file.is_file():
                info = archive.gettarinfo(file, f"run/{file.name}")
                info.pax_headers = {"mtime": date}
                archive.addfile(info, io.BytesIO(file.read_bytes()))
    bundle = make_bundle([str(source)], tmp_path / "b.tar.gz")
    assert bundle.same and bundle.before is not None
    assert bundle.before.findings[0].cause == "host-pinned-offload"
    assert not [gap for gap in bundle.before.gaps if "in.tar" in str(gap.what)]


def test_no_member_leads_out_of_the_bundle(tmp_path: Path) -> None:
    """An archive may hold any names; who unpacks the bundle of it gets none of them."""
    source, target = tmp_path / "in.tar", tmp_path / "b.tar.gz"
    names = ("../../etc/x.log", "/abs/y.log", "a/../../b.log", "..", ".", "c\x1b]0;t\x07\udcff.log")
    with tarfile.open(source, "w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"abc\n"))
    assert make_bundle([str(source)], target).same
    found = list(unpacked(target))
    assert len(found) == len(names) + 1 and not any({"", ".", ".."} & set(name.split("/")) for name in found)
    assert all(name.isprintable() for name in found)


def test_thousands_of_one_name_are_numbered_in_one_go() -> None:
    """Each gets a name of its own, in as many looks as there are members; one that is called so is none of them."""

    class Looked(set[str]):
        count = 0

        def __contains__(self, name: object) -> bool:
            self.count += 1
            return super().__contains__(name)

    bundle, looked = Bundle(Path("x")), Looked()
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as archive:
        writer = _Writer(archive, bundle, Redactor())
        writer._taken = looked
        for name in ("a.log.3", *["a.log"] * 2000):
            writer.add_bytes(name, b"", 0)
    names = [file["name"] for file in bundle.files]
    assert names[:4] == ["a.log.3", "a.log", "a.log.2", "a.log.4"] and len(set(names)) == 2001
    assert looked.count < 3 * 2001


def test_a_truncated_bundle_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Half an archive gives a gap and what was whole."""
    made = make_bundle([str(ROOT / "samples/lab-pinned-start/run")], tmp_path / "b.tar.gz")
    data = made.path.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(data[: len(data) * 9 // 10])
    incident = analyze([str(cut)])
    assert any("not readable to its end" in str(gap.why) for gap in incident.gaps)


LEAKS = (
    '{\\"WANDB_API_KEY\\": \\"Zq7abcdefghi\\"}',
    'os.environ["WANDB_API_KEY"] = "Zq7abcdefghi"',
    "wandb_api_key=b'Zq7abcdefghi'",
    "WANDB_API_KEY%3DZq7abcdefghi",
    "- name: WANDB_API_KEY\n  value: Zq7abcdefghi",
    "--hf_token Zqwabcdefghi",
    "--redis-password Zqwsecret",
    "AWS_SECRET_ACCESS_KEY=/Zq7alrXUtnFEMI+K7MDENG",
    'password: "my Zq7 pass phrase"',
    "accessKeySecret: Zq7abcdefghi",
    "PGPASSWORD=Zq7abcdefg",
    "OPENAI_KEY=Zq7abcdefghi",
    "--use_wandb Zq7abcdefghi123",
    "密码：Zq7abcdefghi",
    "wandb login --relogin Zq7abcdefghi0123456789",
    "docker login -u z -p Zq7pw1",
    "curl -u user:Zq7pw http://h",
    "redis-cli -h h -a Zq7pw1",
    "redis://:Zq7secretpw@10.0.0.5:6379/0",
    "http://h/x?a=1&sig=Zq7abc%2B",
    "https://hooks.slack.com/services/T/B/Zq7abc",
    "{'Authorization': 'Basic Zq7abcdefg=='}",
    "Cookie: session=Zq7abc",
    "npm_Zq7abcdefghijklmnopqrstu",
    '"argv": ["python", "--api-key", "Zq7abcdefghi"]',
)


@pytest.mark.parametrize("text", LEAKS, ids=range(len(LEAKS)))
def test_secrets_as_programs_print_them(text: str) -> None:
    """Escaped, quoted, in Kubernetes' YAML, behind options, in commands, headers and addresses."""
    assert "Zq" not in Redactor().text(text)


def test_argument_lists_and_environments(tmp_path: Path) -> None:
    """What JSON holds apart belongs together: a flag and its value, a name and its value."""
    found = Redactor().value(
        {
            "argv": ["python", "--wandb_key", "Zq7abcdefghi", "--lr", "1e-6"],
            "environment": {"WANDB_API_KEY": "Zq7abcdefghi", "NCCL_DEBUG": "INFO"},
        }
    )
    assert found == {
        "argv": ["python", "--wandb_key", "[secret]", "--lr", "1e-6"],
        "environment": {"WANDB_API_KEY": "[secret]", "NCCL_DEBUG": "INFO"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "pad_token=151643 num_token: 12345678 avg_token: 12345.6789",
        "Bearer authentication failed",
        "Invalid password\n2024-01-01 12:00:00,123 ERROR worker died",
        "nccl version 2.21.5.1 and cudnn 9.1.0.70",
        "dead::beef abc::def c10::Error",
        "/workspace/data/Qwen2.5-7B-Instruct/",
        "/data/ckpt/global_step_100/actor",
        "oom_memcg=/kubepods/burstable/pod1/2",
        "api_key: Optional[str]",
        "--password-file /run/secrets/x/y",
    ],
)
def test_evidence_stays(text: str) -> None:
    """Figures of tokens, versions, scopes of C++, models, steps and cgroups."""
    assert Redactor().text(text) == text


def test_a_key_across_pieces(tmp_path: Path) -> None:
    """A private key that lies where a log is cut into pieces is taken out whole; what follows it stays."""
    key = (
        "-----BEGIN RSA PRIVATE KEY-----\n"
        + "MIIEZq7kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\n" * 27
        + "-----END RSA PRIVATE KEY-----\n"
    )
    folder = tmp_path / "in"
    shutil.copytree(ROOT / "samples/openrlhf-save-kill/run", folder)
    for size in (524_000, 1_047_500, 1_048_576):
        (folder / f"key{size}.log").write_text(
            "y" * 63 + "\n" + "".join("y" * 63 + "\n" for _ in range(size // 64)) + key + "after it\n"
        )
    members = unpacked(make_bundle([str(folder)], tmp_path / "b.tar.gz").path)
    logs = [data for name, data in members.items() if "/key" in name]
    assert len(logs) == 3 and all(b"MIIE" not in data and data.endswith(b"after it\n") for data in logs)


def test_a_begin_without_an_end_takes_nothing_else() -> None:
    """A message that names a key's first line is no key."""
    text = "ValueError: expected '-----BEGIN PRIVATE KEY-----' in id_rsa\nmore\ntorch.OutOfMemoryError: CUDA out of memory\n"
    assert Redactor().text(text).endswith("in id_rsa\nmore\ntorch.OutOfMemoryError: CUDA out of memory\n")


@pytest.mark.parametrize(
    "word", ["a_", "a-", "a.", "1.", "api-", "access_", "sk-", "eyJa.", "/a", ":", "password ", "a@"]
)
def test_long_lines_cost_little(word: str) -> None:
    """No pattern is worse than linear by much: 64 KiB of anything take a moment, not minutes."""
    import subprocess
    import sys

    code = f"from rlhfdoctor.privacy.redact import Redactor; r = Redactor(); t = {word!r} * ({65536} // {len(word)}); r.learn(t); r.text(t)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_hidden_words_in_any_case() -> None:
    """Also inside of longer words, where a project's name often stands."""
    assert Redactor(["Acme"]).text("acme ACME acmeproj my_acme_x") == "word-1 word-1 word-1proj my_word-1_x"


def test_hosts_that_the_recorder_names(tmp_path: Path) -> None:
    """A plain word is a host where run.json or the trace says so."""
    run = write_run(tmp_path / "run", 30, use=lambda t: 100.0, anon={"actor": lambda t: 100.0}, node="acmegpu")
    members = unpacked(make_bundle([str(run)], tmp_path / "b.tar.gz").path)
    assert not [name for name, data in members.items() if b"acmegpu" in data]


def test_a_run_packed_by_hand(tmp_path: Path) -> None:
    """A trace at the top of an archive is read as the run that it is."""
    path = tmp_path / "root.tgz"
    run = ROOT / "samples/lab-pinned-start/run"
    with tarfile.open(path, "w:gz") as archive:
        for item in sorted(run.iterdir()):
            archive.add(item, item.name)
    one, two = analyze([str(run)]), analyze([str(path)])
    assert two.death is not None and one.death is not None
    assert (two.death.step, two.death.phase, two.findings[0].cause) == (
        one.death.step,
        one.death.phase,
        one.findings[0].cause,
    )


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_damage_inside_of_an_archive(tmp_path: Path, ending: str) -> None:
    """Flipped bytes are a gap or nothing to read, never an error of ours."""
    from rlhfdoctor.errors import SourceError

    path = tmp_path / f"x.tar.{ending}"
    with tarfile.open(path, f"w:{ending}") as archive:  # type: ignore[call-overload]
        archive.add(ROOT / "samples/lab-pinned-start/run", "run")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = b"\x00" * 200
    path.write_bytes(bytes(data))
    try:
        assert analyze([str(path)]).gaps
    except SourceError as error:
        assert "nothing to read" in str(error)
