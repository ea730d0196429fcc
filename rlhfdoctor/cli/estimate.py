"""`doctor estimate`: the memory budget of a configuration on the command line."""

from __future__ import annotations

import re
import sys

import click

from rlhfdoctor.cli.console import language_option, make_page, spare_inputs, trimmed, write
from rlhfdoctor.cli.incident import given_options
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import Message, say

_GPU_SIZES = {
    "a10": 24,
    "l4": 24,
    "l40": 48,
    "l40s": 48,
    "a100": 80,
    "a800": 80,
    "h100": 80,
    "h800": 80,
    "h20": 96,
    "h200": 141,
    "b200": 180,
    "v100": 32,
    "4090": 24,
    "3090": 24,
    "a6000": 48,
}
"""GiB of a GPU by its name; a size in the name wins, as in a100-40g."""


@click.command(cls=ProjectCommand)
@click.argument("paths", nargs=-1)
@click.option(
    "--config", "configs", multiple=True, metavar="FILE", help="Configuration file beside the paths; repeatable."
)
@click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, if it cannot be detected.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model, if its size cannot be detected: Qwen2.5-7B, 13B, or a folder with config.json.",
)
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Nodes of the run.")
@click.option(
    "--gpus-per-node", type=click.IntRange(0, 1024), help="GPUs of a node; 0: everything is computed in host memory."
)
@click.option("--host-memory", metavar="SIZE", help="Memory of a node, such as 1T or 512G.")
@click.option(
    "--container-memory", metavar="SIZE", help="Memory limit of the container or job, if the files do not give it."
)
@click.option("--shm", metavar="SIZE", help="Size of /dev/shm.")
@click.option("--gpu", metavar="NAME", help="Kind of GPU, such as h100-80g.")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of a GPU, in place of --gpu.")
@click.option(
    "--suggest", is_flag=True, help="The smallest change of your settings with which it fits, and what it costs."
)
@click.option("--brief", is_flag=True, help="One line only, for job scripts.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the result here instead of standard output."
)
@language_option
def estimate(
    paths: tuple[str, ...],
    configs: tuple[str, ...],
    framework: str | None,
    model: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    host_memory: str | None,
    container_memory: str | None,
    shm: str | None,
    gpu: str | None,
    gpu_memory: str | None,
    suggest: bool,
    brief: bool,
    form: str,
    out: str | None,
    lang: str,
) -> None:
    """Say before a run whether its memory will do: host, /dev/shm and GPU, by role and phase.

    PATHS is any mix of launch scripts, YAML, DeepSpeed JSON and logs that show the settings. Without any, --framework
    and --model are estimated with the release's defaults; a model's name among PATHS is taken for --model. The exit
    status is 1 when it will not fit, or probably not, or when the settings are a known trap; it is 0 when it fits, may
    fit (only long sequences would exceed a GPU), or no limit is known.

    \b
    Examples:
      doctor estimate launch.sh --host-memory 1T --gpu a100-80g
      doctor estimate config.yaml --model Qwen2.5-7B --gpus-per-node 8 --suggest
      doctor estimate Qwen/Qwen2.5-7B --framework trl --gpus-per-node 8 --gpu h100
      doctor estimate launch.sh --brief || exit 1      # in a job script
    """
    from rlhfdoctor.core.estimate import Machine, estimate_session, opened, suggest_session
    from rlhfdoctor.i18n.language import load_language
    from rlhfdoctor.report import estimate as report
    from rlhfdoctor.report import estimate_json
    from rlhfdoctor.report.estimate_verdict import sentence, verdict
    from rlhfdoctor.report.sanitize import shell_path
    from rlhfdoctor.settings.framework import check_given

    check_given(framework)
    paths, model = _named(paths, model)
    spare_inputs(out, (*paths, *configs))
    if not paths and not configs and (framework is None or model is None):
        raise UsageError(_what_is_missing(model))
    machine = Machine(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        host_bytes=_size("--host-memory", host_memory),
        container_bytes=_size("--container-memory", container_memory),
        shm_bytes=_size("--shm", shm),
        gpu_bytes=_size("--gpu-memory", gpu_memory) or _gpu(gpu),
        model=model,
    )
    with opened(paths, configs=configs, framework=framework) as session:
        found = estimate_session(session, machine)
        after, patches = suggest_session(session, machine) if suggest else (None, [])
    words = load_language(lang)
    if form == "json":
        text = estimate_json.render(found, after, patches)
    elif brief:
        text = f"doctor estimate: {words(sentence(found))}\n"
        if after is not None:
            text += f"doctor estimate: {words(report.suggestion(after, patches))}\n"
    else:
        page = make_page(out is not None, width=140)
        report.render(found, page, words)
        if after is not None:
            report.render_suggestion(after, patches, page, words)
        elif verdict(found) in ("over", "tight"):
            given = map(shell_path, paths)
            command = ["doctor", "estimate", *given, *given_options(_OF_THE_RUN), "--suggest"]
            report.render_next(say("find the smallest change that fits"), command, page, words)
        text = trimmed(page)
    write(text, out, colours=form != "json" and not brief)
    sys.exit(1 if verdict(found) in ("over", "trap") else 0)


_OF_THE_RUN = (
    *("configs", "framework", "model", "nodes", "gpus_per_node", "host_memory"),
    *("container_memory", "shm", "gpu", "gpu_memory"),
)
"""Parameters that say what is estimated."""


def _named(paths: tuple[str, ...], model: str | None) -> tuple[tuple[str, ...], str | None]:
    """The paths without a model's public name, which stands for --model."""
    from pathlib import Path

    from rlhfdoctor.budget.shapes import find_shape

    if model is None:
        for path in paths:
            if _MODEL_NAME.fullmatch(path) and not Path(path).exists() and find_shape(path) is not None:
                return tuple(other for other in paths if other != path), path
    return paths, model


_MODEL_NAME = re.compile(r"(?:[\w.-]{1,96}/)?(?![\w.-]*\.[a-z]{2,5}$)[\w.-]{1,96}")
"""`Qwen/Qwen2.5-7B`, `13B`; a name with the ending of a file is none."""


def _what_is_missing(model: str | None) -> Message:
    """The command that would be answered, where neither files nor flags say what is trained."""
    if model is None:
        return say(
            "give a launch script or configuration, or the framework and the model: "
            "doctor estimate --framework trl --model Qwen2.5-7B"
        )
    return say(
        "{model} is a model; how is it trained? Give the launch script beside it (doctor estimate launch.sh --model "
        "{model}), or the framework, for its defaults (doctor estimate --framework trl --model {model})",
        model=model,
    )


def _size(flag: str, text: str | None) -> int | None:
    from rlhfdoctor.units import parse_bytes

    if text is None:
        return None
    size = parse_bytes(text)
    if not size or size < 1 << 30:
        raise UsageError(say("{option} {text}: write a size such as 512G, 1.5T or 80GiB", option=flag, text=text))
    return size


def _gpu(name: str | None) -> int | None:
    if name is None:
        return None
    plain = name.lower().replace("_", "-").replace(" ", "-")
    stated = re.search(r"(?<![a-z0-9])(\d{1,3})\s?g(?:i?b)?$", plain)
    found = next(
        (size for key, size in _GPU_SIZES.items() if re.search(rf"(?:^|[-/]|rtx|gtx|nvidia){key}(?:$|-)", plain)), None
    )
    size = int(stated[1]) if stated else found
    if not size:
        raise UsageError(
            say(
                "--gpu {name}: not known; add its size, such as {plain}-80g, or give --gpu-memory. Known: {known:, }",
                name=name,
                plain=plain,
                known=tuple(_GPU_SIZES),
            )
        )
    return int(size * _USABLE * (1 << 30))


_USABLE = 0.985
"""Of the size in a card's name; an H200 of 141 shows 139 GiB, an A100 of 80 shows 79."""
