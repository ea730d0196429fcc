"""Fetch one release of a framework from the package registry and unpack it, once.

A release that was only ever a tag comes from its repository by `fetch_tag`: `make schemas` alone asks for those.

Only the release itself comes, without its dependencies (`pip download --no-deps`): 0.1 to 2 MB
each, neither torch nor vLLM. They lie in `$RLHFDOCTOR_CACHE`, or `~/.cache/rlhfdoctor/packages`:

    openrlhf-0.11.2/openrlhf-0.11.2.data/purelib/openrlhf/cli/train_ppo_ray.py
    deepspeed-0.19.8/deepspeed-0.19.8/deepspeed/runtime/zero/config.py
    verl-0.9.1/verl/trainer/config/ppo_trainer.yaml
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from packaging.version import Version

from rlhfdoctor.settings.spell import parse_version

# OpenRLHF's wheels name one interpreter (cp310, cp311, cp312) and Linux although they hold only
# Python; every release has a cp311 one, so that is asked for on any machine.
_WHEEL = ["--only-binary=:all:"]
_CP311 = ["--python-version=3.11", "--implementation=cp", "--abi=cp311"]
_SOURCE = ["--no-build-isolation", "--no-binary=deepspeed"]
_PIP_OPTIONS: dict[str, list[str]] = {
    "deepspeed": _SOURCE,  # the registry has no wheel of it; runs setup.py egg_info, without torch
    "openrlhf": [*_WHEEL, *_CP311, "--platform=manylinux1_x86_64"],
    "trl": _WHEEL,
    "verl": _WHEEL,
}
_PIP_LIMIT_S = 120.0
_REPOSITORIES = {
    "easyr1": "https://github.com/hiyouga/EasyR1",
    "openrlhf": "https://github.com/OpenRLHF/OpenRLHF",
}

_failures: dict[str, str] = {}
"""Why a release, or a whole package, cannot be had: a second try would only wait again."""


class Unavailable(Exception):
    """A release cannot be checked here: no registry, no such version, or a tool is missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def fetch(name: str, version: str) -> Path:
    """Return the folder that holds the package `name` of this release, downloading it once.

    Raises:
        Unavailable: the registry cannot be reached or lacks the version.
    """
    release = f"{name}-{version}"
    unpacked = _cache_folder() / release
    if not unpacked.is_dir():
        known_failure = _failures.get(name) or _failures.get(release)
        if known_failure is not None:
            raise Unavailable(known_failure)
        _download_and_unpack(name, version, unpacked)
    return _package_parent(unpacked, name)


def fetch_tag(name: str, version: str) -> Path:
    """Return the work tree of the tag `v<version>`, cloned once; `$RLHFDOCTOR_GIT_OPENRLHF` (or _EASYR1) may name a clone at hand.

    Raises:
        Unavailable: the repository cannot be reached or lacks the tag.
    """
    target = _cache_folder() / f"{name}-{version}-tag"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        source = os.environ.get(f"RLHFDOCTOR_GIT_{name.upper()}") or _REPOSITORIES[name]
        command = ["git", "clone", "--quiet", "--depth=1", f"--branch=v{version}", source]
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
            try:
                subprocess.run(
                    [*command, f"{folder}/tree"],
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=_PIP_LIMIT_S,
                    env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
                )
            except (OSError, subprocess.SubprocessError) as error:
                words = getattr(error, "stderr", None) or str(error)
                raise Unavailable(f"{source} gave no tag v{version}: {words.strip()[-200:]}") from error
            Path(folder, "tree").rename(target)
    return target


def tagged_trees(name: str, oldest: str, folders: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield each release from `oldest` on with its work tree, of a whole clone in `$RLHFDOCTOR_GIT_<NAME>`; none without one."""
    clone = os.environ.get(f"RLHFDOCTOR_GIT_{name.upper()}", "").removeprefix("file://")
    if not clone:
        return
    tags = _git(clone, "tag", "--list", "v*").decode().split()
    for tag in tags:
        version = parse_version(tag)
        if version is None or version.is_prerelease or version < Version(oldest):
            continue
        with tempfile.TemporaryDirectory() as folder:
            there = _git(clone, "ls-tree", "-d", "--name-only", tag, *folders).decode().split()
            with tarfile.open(fileobj=io.BytesIO(_git(clone, "archive", tag, *there))) as archive:
                archive.extractall(folder, filter="data")
            yield tag[1:], Path(folder)


def _git(clone: str, *words: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True).stdout


def _cache_folder() -> Path:
    chosen = os.environ.get("RLHFDOCTOR_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "rlhfdoctor" / "packages"


def _download_and_unpack(name: str, version: str, target: Path) -> None:
    """Fill `target` in one rename, so that parallel test processes never see half a release."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
        downloads, contents = Path(folder, "downloads"), Path(folder, "contents")
        _pip_download(name, version, downloads)
        _unpack(next(downloads.iterdir()), contents)
        try:
            contents.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise


def _pip_download(name: str, version: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--retries=1", "--timeout=15", f"--dest={folder}"]
    command += [*_PIP_OPTIONS[name], f"{name}=={version}"]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PIP_LIMIT_S)
    except subprocess.TimeoutExpired:
        _fail(name, f"the package registry gave no {name} within {_PIP_LIMIT_S:.0f} s")
    if result.returncode != 0:
        _fail_with_pip(name, version, result.stderr)


def _fail_with_pip(name: str, version: str, stderr: str) -> None:
    """Raise with pip's own reason; "from versions: none" means that no release could be listed."""
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")]
    if "(from versions: none)" in stderr:
        _fail(name, f"the package registry cannot be reached, or has no {name} at all")
    if "No matching distribution" in stderr:
        _fail(f"{name}-{version}", f"the package registry has no {name} {version}")
    last_words = errors[-1] if errors else stderr.strip()[-200:]
    _fail(f"{name}-{version}", f"pip could not download {name} {version}: {last_words}")


def _fail(key: str, reason: str) -> NoReturn:
    _failures[key] = reason
    raise Unavailable(reason)


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)
    else:
        with tarfile.open(archive) as source:
            source.extractall(target, filter="data")


def _package_parent(unpacked: Path, name: str) -> Path:
    """Find the import root: the archive's, a wheel's `*.data/purelib` or an sdist's top folder."""
    for parent in (unpacked, *unpacked.glob("*.data/purelib"), *unpacked.glob(f"{name}-*")):
        if (parent / name).is_dir():
            return parent
    shutil.rmtree(unpacked)
    raise Unavailable(f"{unpacked.name} holds no package {name}")
