"""A recorded run in an archive of any kind says what its folder says, and nothing of it is left out in silence."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.logs.archive import ENDINGS
from rlhfdoctor.types import Incident

ROOT = Path(__file__).resolve().parent.parent.parent
RUN = ROOT / "samples/recorded-leak/run"


def pack(path: Path, run: Path = RUN, inside: str = "run") -> Path:
    """The run's folder as an archive of the kind that the name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(run.rglob("*")):
                archive.write(file, f"{inside}/{file.relative_to(run)}")
        return path
    kind = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".tbz2": "bz2", ".xz": "xz", ".txz": "xz"}.get(path.suffix, "")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{kind}") as archive:  # type: ignore[call-overload]
        archive.add(run, inside)
    data = out.getvalue()
    path.write_bytes(zstandard.ZstdCompressor().compress(data) if path.suffix in (".zst", ".tzst") else data)
    return path


def gist(incident: Incident) -> tuple[object, ...]:
    """What must be the same."""
    death = incident.death
    return (
        incident.verdict,
        death and (death.killer, death.phase, death.step, death.time),
        incident.framework,
        len(incident.gaps),
        [(finding.cause, finding.confidence) for finding in incident.findings],
        [(p.part, p.bytes) for p in incident.ledger],
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archive_says_what_the_folder_says(tmp_path: Path, ending: str) -> None:
    """Verdict, death, confidences and ledger, for every ending that is opened at all."""
    folder, packed = analyze([str(RUN)]), analyze([str(pack(tmp_path / f"run{ending}"))])
    assert folder.verdict == "cause" and gist(packed) == gist(folder)


@pytest.mark.parametrize("ending", [".zip", ".tar.zst"])
def test_a_run_deep_inside(tmp_path: Path, ending: str) -> None:
    """`tar czf run.tgz /home/me/doctor-runs/run` packs the folders above, too."""
    packed = pack(tmp_path / f"run{ending}", inside="home/me/doctor-runs/run")
    assert gist(analyze([str(packed)])) == gist(analyze([str(RUN)]))


def test_a_run_deep_below_a_folder(tmp_path: Path) -> None:
    """Runs are read right below a folder; of those further down the report says that they were not."""
    folder = tmp_path / "a" / "b" / "run"
    shutil.copytree(RUN, folder)
    assert [str(gap.what) for gap in analyze([str(tmp_path)]).gaps if "recorded run" in str(gap.why)] == [str(folder)]


def test_a_run_in_an_archive_in_a_folder(tmp_path: Path) -> None:
    """Only an archive that is named itself is unpacked; the report says so."""
    pack(tmp_path / "run.zip")
    assert [str(gap.what) for gap in analyze([str(tmp_path)]).gaps if "recorded run" in str(gap.why)] == [
        str(tmp_path / "run.zip")
    ]


def test_a_hostile_zip(tmp_path: Path) -> None:
    """Names that lead out of the archive write nothing."""
    path = pack(tmp_path / "in.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../evil.txt", "evil")
    incident = analyze([str(path)])
    assert sum("leads out of the archive" in str(gap.why) for gap in incident.gaps) == 1
    assert incident.verdict == "cause" and not list(tmp_path.parent.glob("evil.txt"))
