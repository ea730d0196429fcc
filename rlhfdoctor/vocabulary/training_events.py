"""Kinds of event of the training itself: phases, steps, data, configuration, what the recorder saw."""

from __future__ import annotations

from rlhfdoctor.vocabulary.fields import FIELD as F
from rlhfdoctor.vocabulary.names import Scope, says
from rlhfdoctor.vocabulary.run import CERTAIN, VANISHED, Failure


class gpu(Scope):
    """What the trainer prints of the GPU."""

    used = says("GPU memory in use, in a step's metrics", F.what_text, F.used_bytes)


class phase(Scope):
    """Phases and steps of the training loop."""

    step = says("a step of the training ended", F.step, F.total_count)
    load = says("loading", F.step)
    rollout = says("generation of responses", F.step, F.done_count, F.total_count, F.elapsed_text)
    score = says("scores and log-probabilities", F.step)
    update = says("optimization", F.step)
    weight_sync = says("weights go to the rollout engine", F.step)
    checkpoint = says("a checkpoint is being written", F.step)
    episode = says("progress over the whole training", F.episode, F.step, F.total_count)
    checkpoint_load = says("a checkpoint is being read")
    first_steps = says("a note that places the failure in the first steps", F.note_text)
    finished = says("the training is over")


class progress(Scope):
    """Progress bars."""

    long = says("a progress bar of work that takes long", F.elapsed_text, F.left_text)
    bar = says("a progress bar without a description", F.step, F.total_count, F.elapsed_text, F.rate_text)
    planned = says("the trainer announces the number of its steps", F.total_count)


class reward(Scope):
    """Reward functions, judges and sandboxes."""

    call_failed = says("a call of a judge or sandbox failed", F.what_text, F.try_count)
    progress = says("a progress bar of scoring", F.name, F.done_count, F.total_count, F.elapsed_text)


class data(Scope):
    """Data sets: their preparation, and samples of them."""

    prepare = says("a data set is being prepared", F.name, F.row_count)
    sample = says("a sample that the trainer prints begins")


class config(Scope):
    """Configuration in force, as logs show it."""

    argv = says("argument list of a command", F.list_text)
    overrides = says("Hydra's overrides", F.list_text)
    dump = says("a dump of the resolved configuration", F.list_text)
    command = says("a command with its arguments, as a shell or a person shows it", F.list_text)
    variable = says("an environment variable with its value", F.list_text)
    entry = says("an entry of such a dump")
    model_size = says("size of the model, in a note")
    parameters = says("parameters of the model, and those that are trained", F.all_text, F.trained_text, F.million_text)
    engine_share = says("the share of the GPU that the engine may take", F.wanted_ratio)
    moe_model = says("class of a mixture-of-experts model", F.name)
    pin_edited = says("a note on pin_memory")


class version(Scope):
    """Versions of packages."""

    package = says("name and version of a package", F.name, F.version)


class framework(Scope):
    """The training framework."""

    module = says("a module or command that only this framework has", F.name)


class trace(Scope):
    """What the recorder of `doctor watch` saw."""

    mark = says("a phase or step begins", F.phase, F.step, F.pid, F.role)
    cgroup_kill = says(
        "the kill counter rose while a cgroup's limit was full",
        F.level_text,
        F.count,
        failure=Failure("kernel-oom-cgroup", CERTAIN),
    )
    node_kill = says(
        "the kill counter of the node rose", F.level_text, F.count, failure=Failure("kernel-oom-node", CERTAIN)
    )
    job_exit = says("the recorded command ended with a failure", F.exit_code, F.pid)
    job_done = says("the recorded command ended with exit status 0", F.pid)
    raylet_gone = says("the raylet ended", F.pid, failure=Failure("sigkill-unknown", VANISHED))
    gone = says("a process that held memory ended", F.pid, F.name, F.role, F.rss_anon_bytes, F.rss_shmem_bytes)
    node_lost = says("a node was lost", F.why_text, failure=Failure("sigkill-unknown", VANISHED))
    alarm = says("a limit was forecast to be full soon", F.left_s)
