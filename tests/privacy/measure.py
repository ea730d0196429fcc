"""How much of what is planted survives the redactor of bundles, by form and by container.

    python -m tests.privacy.measure            # the tables
    python -m tests.privacy.measure --write    # into tests/privacy/SECRETS.md
    python -m tests.privacy.measure --leaks    # each leak, as it is shown
    python -m tests.privacy.measure --stays    # what is changed in the samples' logs, and in folders given after it
    python -m tests.privacy.measure --speed    # MB a second, of 50 MB of the samples' logs
"""

from __future__ import annotations

import argparse
import difflib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from rlhfdoctor.plugins import folders
from rlhfdoctor.privacy.redact import Redactor
from tests.privacy.corpus import CONTAINERS, Container, Planted, find_leaks, plant

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SEEDS = ("1", "2", "3")


def redact(text: str) -> str:
    """As a bundle does it: names are learned, then all is written anew."""
    redactor = Redactor(known=folders.words())
    redactor.learn(text)
    return redactor.text(text)


def sweep(seed: str) -> Iterator[tuple[Planted, Container, str, list[str]]]:
    """Every form in every container: what is shown, and what leaks of it."""
    for planted in plant(seed):
        for container in CONTAINERS:
            shown = redact(container.write(planted.text, planted.secrets))
            yield planted, container, shown, find_leaks(planted, container, shown)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f} %" if total else "-"


def tables(seeds: tuple[str, ...] = SEEDS) -> list[str]:
    """The lines of SECRETS.md."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    totals: Counter[str] = Counter()
    places: Counter[str] = Counter()
    by_form: dict[tuple[str, str], list[str]] = defaultdict(list)
    cells = leaks = 0
    for seed in seeds:
        for planted, container, _, leaked in sweep(seed):
            cells += 1
            totals[planted.kind] += 1
            if leaked:
                leaks += 1
                kinds[planted.kind][container.name] += 1
                places[container.name] += 1
                by_form[planted.kind, planted.name].append(container.name)
    num_forms = len({(planted.kind, planted.name) for planted in plant(seeds[0])})
    lines = [
        f"{num_forms} forms in {len(CONTAINERS)} containers, each with {len(seeds)} sets of invented values: {cells} texts, "
        f"of which {leaks} leak ({_share(leaks, cells)}).",
        "",
        "| class | texts | leaks | share |",
        "|---|---:|---:|---:|",
        *(f"| {kind} | {totals[kind]} | {kinds[kind].total()} | {_share(kinds[kind].total(), totals[kind])} |" for kind in totals),
        "",
        "| container | leaks | share |",
        "|---|---:|---:|",
        *(f"| {c.name} | {places[c.name]} | {_share(places[c.name], cells // len(CONTAINERS))} |" for c in CONTAINERS),
        "",
        "| form that leaks | class | containers |",
        "|---|---|---|",
    ]
    for (kind, name), found in sorted(by_form.items(), key=lambda item: (-len(item[1]), item[0])):
        where = Counter(found)
        shown = "all" if len(where) == len(CONTAINERS) else ", ".join(where)
        lines.append(f"| {name} | {kind} | {shown} |")
    return lines


def texts(folders_of_logs: list[Path]) -> Iterator[tuple[Path, str]]:
    """Every text file below the folders, as far as the first megabytes go."""
    for folder in folders_of_logs:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".trace", ".gz", ".zst", ".png", ".html"):
                data = path.read_bytes()[: 4 << 20]
                if b"\0" not in data[:4096]:
                    yield path, data.decode("utf-8", "replace")


def changed(folders_of_logs: list[Path]) -> Counter[tuple[str, str]]:
    """What the redactor puts in place of what in logs that hold few secrets, and how often."""
    found: Counter[tuple[str, str]] = Counter()
    for folder in folders_of_logs:
        redactor = Redactor(known=folders.words())
        pages = list(texts([folder]))
        for _, text in pages:
            redactor.learn(text)
        for _, text in pages:
            for old, new in zip(text.split("\n"), redactor.text(text).split("\n"), strict=False):
                if old != new:
                    one, two = (re.findall(r"\w+|\W", line) for line in (old, new))
                    for what, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
                        if what != "equal":
                            found["".join(one[a:b]), "".join(two[c:d])] += 1
    return found


def speed(size: int = 50_000_000) -> str:
    """MB a second of learning and of writing anew."""
    whole = "".join(text for _, text in texts([ROOT / "samples", ROOT / "rules"]))
    pieces = [whole[at : at + (1 << 20)] for at in range(0, len(whole), 1 << 20)]
    pieces *= -(-size // len(whole))
    redactor = Redactor(known=folders.words())
    start = time.process_time()
    for piece in pieces:
        redactor.learn(piece)
    learned = time.process_time()
    for piece in pieces:
        redactor.text(piece)
    done = time.process_time()
    total = sum(map(len, pieces)) / 1e6
    return f"{total:.0f} MB: learned at {total / (learned - start):.1f} MB/s, written at {total / (done - learned):.1f} MB/s"


HEAD = """# Secrets that survive the redactor

Written by `python -m tests.privacy.measure --write`. What is planted is invented (`forms.py`); a text leaks if a third of a
secret, and eight characters at least, can be read in what the redactor of bundles makes of it, as it is or decoded
(`corpus.py`).
"""


def main() -> None:
    """Prints or writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--stays", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("folders", nargs="*", type=Path)
    chosen = parser.parse_args()
    if chosen.speed:
        print(speed())
        return
    if chosen.stays:
        for (old, new), count in changed(chosen.folders or sorted((ROOT / "samples").glob("*/run"))).most_common():
            print(count, repr(old), repr(new), sep="\t")
        return
    if chosen.leaks:
        for planted, container, shown, leaked in sweep("1"):
            if leaked:
                print(f"{planted.kind} | {planted.name} | {container.name} | {leaked} | {shown!r}")
        return
    text = "\n".join([HEAD, *tables()]) + "\n"
    if chosen.write:
        (HERE / "SECRETS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
