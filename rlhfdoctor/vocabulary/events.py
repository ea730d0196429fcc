"""Every kind of event, by `scope.kind`; each is declared in one of the modules named here."""

from rlhfdoctor.vocabulary.machine_events import docker, host, job, k8s, kernel, net, python, shell, slurm
from rlhfdoctor.vocabulary.stack_events import deepspeed, flight, gloo, nccl, ray, sglang, torch, vllm
from rlhfdoctor.vocabulary.training_events import config, data, framework, gpu, phase, progress, reward, trace, version

__all__ = [
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
