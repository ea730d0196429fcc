"""`doctor report`: which file it writes, and what its pictures show."""

from __future__ import annotations

import struct
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib comes with the extra pictures")
ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "samples/lab-pinned-start/run"
LOGS = ROOT / "samples/easyr1-long-prompts/run"


def test_png(doctor: Callable[..., Any], tmp_path: Path) -> None:
    """A picture eleven inches wide, with something on it."""
    target = tmp_path / "timeline.png"
    result = doctor("report", RUN, "--out", target)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"wrote {target}\n")
    data = target.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">I", data[16:20])[0] == 1650
    assert len(data) > 30_000


def test_svg_tells_roles_and_limits(doctor: Callable[..., Any], tmp_path: Path) -> None:
    """It is XML, and the same run gives the same picture."""
    files = [tmp_path / f"{number}.svg" for number in range(2)]
    for file in files:
        doctor("report", RUN, "--out", file)
    xml.etree.ElementTree.parse(files[0])
    text = files[0].read_text()
    assert all(f"<!-- {name} -->" in text for name in ("actor", "page-locked", "update", "container limit 4.15 GiB"))


def test_svg_in_chinese(doctor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written in the picture is Chinese where the machine has a font for it, and English where it has none."""
    from rlhfdoctor.report import picture

    own = set(picture._FONTS["zh"]) & set(pytest.importorskip("matplotlib.font_manager").fontManager.get_font_names())
    texts = []
    for number, families in enumerate((picture._FONTS["zh"], ())):
        monkeypatch.setitem(picture._FONTS, "zh", families)  # type: ignore[arg-type]
        doctor("report", RUN, "--out", tmp_path / f"{number}.svg", "--lang", "zh")
        texts.append((tmp_path / f"{number}.svg").read_text())
    assert ("<!-- 匿名内存 -->" in texts[0]) is bool(own)
    assert "<!-- anonymous -->" in texts[1] and "匿名内存" not in texts[1]


@pytest.mark.parametrize(("folder", "ending"), [(LOGS, "html"), (RUN, "md"), (RUN, "html"), (RUN, "png")])
def test_reports_need_no_polars(
    doctor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, ending: str
) -> None:
    """Charts are there without it; only tables of a trace need it."""
    monkeypatch.setitem(sys.modules, "polars", None)
    result = doctor("report", folder, "--out", tmp_path / f"page.{ending}")
    assert (result.exit_code, (tmp_path / f"page.{ending}").stat().st_size > 1000) == (1, True)


@pytest.mark.parametrize(
    ("ending", "begins"),
    [("html", "<!doctype html>"), ("htm", "<!doctype html>"), ("md", "## cause"), ("markdown", "## cause")],
)
def test_the_ending_tells_the_format(doctor: Callable[..., Any], tmp_path: Path, ending: str, begins: str) -> None:
    """And --format wins over it."""
    target = tmp_path / f"report.{ending}"
    assert doctor("report", RUN, "--out", target).exit_code == 1
    assert target.read_text().startswith(begins)
    assert doctor("report", RUN, "--out", target, "--format", "md").exit_code == 1
    assert target.read_text().startswith("## cause")


def test_without_a_name(doctor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is put into the working folder, and standard error says where."""
    monkeypatch.chdir(tmp_path)
    result = doctor("report", LOGS)
    assert (result.exit_code, result.stderr) == (1, "wrote doctor-report.html\n")
    assert "<h2>Findings</h2>" in (tmp_path / "doctor-report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((LOGS, "--out", "x.png"), "a picture needs a trace"),
        ((RUN, "--out", "x.pdf"), "end it in .html, .md, .png, .svg or .prom"),
        ((RUN, "--out", "no/such/folder/x.png"), "No such file or directory"),
        (("nowhere",), "no such file or folder"),
    ],
    ids=["logs", "ending", "folder", "path"],
)
def test_wrong_use(
    doctor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[Any, ...], says: str
) -> None:
    """The cause and the next step, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    result = doctor("report", *words)
    assert (result.exit_code, says in result.stderr, list(tmp_path.iterdir())) == (2, True, [])


def test_analyze_gives_the_same_page(doctor: Callable[..., Any]) -> None:
    """`doctor analyze --format html` prints it."""
    result = doctor("analyze", RUN, "--format", "html")
    assert result.exit_code == 1
    assert result.stdout.startswith("<!doctype html>") and 'figure class="chart"' in result.stdout
