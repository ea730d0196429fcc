"""Hooks that set marks (rlhfdoctor.marks) in trainers of others, in one line each.

    trainer = GRPOTrainer(..., callbacks=[hooks.TrainerMarks()])    # transformers, TRL
    hooks.mark_generation(trainer)                                  # TRL: the rollout within a step
    hooks.mark_verl()                                               # verl, in the process that runs fit()
    hooks.mark_openrlhf()                                           # OpenRLHF, likewise

Nothing of these programs is imported before it is asked for, and nothing that they do is changed. A part that a release
does not have is left out.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlhfdoctor import marks

if TYPE_CHECKING:
    TrainerMarks: type[Any]

_VERL_PHASES: Mapping[str, str] = {
    "gen": "rollout",
    "gen_max": "rollout",
    "reward": "score",
    "old_log_prob": "score",
    "ref": "score",
    "values": "score",
    "update_critic": "update",
    "update_actor": "update",
    "update_weights": "weight_sync",
    "save_checkpoint": "checkpoint",
    "testing": "eval",
}
"""What the loop of verl 0.2 to 0.9 times (verl/trainer/ppo/ray_trainer.py, since 0.9 v1/trainer_base.py) -> phase."""
_VERL_LOOP = "verl.trainer.ppo.ray_trainer"
_GENERATES = "_generate_and_score_completions"
"""Of TRL's GRPO and RLOO trainers, 0.16 to 1.16 (trl/trainer/grpo_trainer.py)."""


class _TrainerMarks:
    """A callback of transformers' Trainer that marks its steps, updates, evaluations and saves.

    A step has the number that the Trainer gives to a checkpoint at its end.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The process is one of the trained model's."""
        marks.role("actor", rank=getattr(args, "process_index", None))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step begins, with its first batch."""
        marks.mark("update", step=state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """What comes next is known: the callback that decides it is the first one."""
        marks.mark("update", step=state.global_step, edge="end")
        _mark_next(state, control, evaluates=control.should_evaluate)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Likewise, where it is done once an epoch."""
        _mark_next(state, control, evaluates=control.should_evaluate)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation is over."""
        marks.mark("eval", step=state.global_step, edge="end")
        _mark_next(state, control, evaluates=False)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint is written."""
        marks.mark("checkpoint", step=state.global_step, edge="end")


def _mark_next(state: Any, control: Any, *, evaluates: bool) -> None:
    if evaluates:
        marks.mark("eval", step=state.global_step)
    elif control.should_save:
        marks.mark("checkpoint", step=state.global_step)


def __getattr__(name: str) -> Any:
    """`TrainerMarks`, a subclass of transformers.TrainerCallback, made when it is asked for first."""
    if name != "TrainerMarks":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from transformers import TrainerCallback

    made = type(name, (_TrainerMarks, TrainerCallback), {"__doc__": _TrainerMarks.__doc__, "__module__": __name__})
    globals()[name] = made
    return made


def mark_generation(trainer: Any) -> bool:
    """Marks the rollouts of a trainer of TRL, which lie within its steps; whether it has any that are known."""
    generate = getattr(trainer, _GENERATES, None)
    if generate is None:
        return False

    @functools.wraps(generate)
    def marked(*args: Any, **words: Any) -> Any:
        with marks.phase("rollout"):
            made = generate(*args, **words)
        if trainer.model.training:
            marks.mark("update")
        return made

    setattr(trainer, _GENERATES, marked)
    return True


def mark_verl() -> list[str]:
    """Marks the steps of verl by what it logs, its phases by what it times; the names of what was found.

    Call it once in the process that runs the trainer's `fit`, before `fit`: the task runner.
    """
    found = _wrap_logs("verl.utils.tracking", ("Tracking",), "log", step_at=1)
    for name in (_VERL_LOOP, "verl.utils.debug"):
        _module(name)
    wrapped: dict[Any, Any] = {}  # the timer is imported by its name into several modules
    for name, module in list(sys.modules.items()):
        timer = "_timer" if name == _VERL_LOOP and not hasattr(module, "marked_timer") else "marked_timer"  # 0.2 to 0.3
        inner = vars(module).get(timer) if name.startswith("verl.") and module is not None else None
        if inner is not None:
            setattr(module, timer, wrapped.setdefault(inner, _marked_timer(inner)))
            found.append(f"{name}.{timer}")
    return found


def mark_openrlhf() -> list[str]:
    """Marks the steps of OpenRLHF by what its loggers get after each; the names of what was found.

    It needs one of its loggers (`--use_wandb`, `--use_tensorboard`) and `--logging_steps 1`. Call it in the process
    that trains, before `fit`.
    """
    return _wrap_logs("openrlhf.utils.logging_utils", ("WandbLogger", "TensorboardLogger"), "log_train", step_at=0)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _wrap_logs(module: str, classes: tuple[str, ...], method: str, step_at: int) -> list[str]:
    """Marks the step after the one that was logged; `step_at` is its place among the arguments."""
    found = []
    last = [-1]
    for name in classes:
        kind = getattr(_module(module), name, None)
        if kind is not None and hasattr(kind, method):
            setattr(kind, method, _marked_log(getattr(kind, method), step_at, last))
            found.append(name)
    return found


def _marked_log(log: Callable[..., Any], step_at: int, last: list[int]) -> Callable[..., Any]:
    @functools.wraps(log)
    def marked(self: Any, *args: Any, **words: Any) -> Any:
        made = log(self, *args, **words)
        step = words.get("step", words.get("global_step", args[step_at] if len(args) > step_at else None))
        if isinstance(step, int) and step > last[0]:  # several loggers get the same
            last[0] = step
            marks.step(step + 1)
        return made

    return marked


def _marked_timer(timer: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(timer)
    @contextmanager
    def marked(name: Any, *args: Any, **words: Any) -> Iterator[Any]:
        phase = _VERL_PHASES.get(str(name))
        with timer(name, *args, **words) as made:
            if phase is None:
                yield made
            else:
                with marks.phase(phase):
                    yield made

    return marked
