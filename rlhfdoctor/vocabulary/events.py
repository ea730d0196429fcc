"""Every kind of event, by `scope.kind`; each is declared in one of the modules named here."""

from rlhfdoctor.vocabulary.machine_events import (
    batch,
    docker,
    host,
    job,
    k8s,
    kernel,
    net,
    numbers,
    python,
    shell,
    slurm,
)
from rlhfdoctor.vocabulary.stack_events import deepspeed, flight, gloo, nccl, ray, sglang, torch, vllm
from rlhfdoctor.vocabulary.training_events import config, data, framework, gpu, phase, progress, reward, trace, version

__all__ = [
    "batch",
    "config",
    "data",
    "deepspeed",
    "docker",
    "flight",
    "framework",
    "gloo",
    "gpu",
    "host",
    "job",
    "k8s",
    "kernel",
    "nccl",
    "net",
    "numbers",
    "phase",
    "progress",
    "python",
    "ray",
    "reward",
    "sglang",
    "shell",
    "slurm",
    "torch",
    "trace",
    "version",
    "vllm",
]
