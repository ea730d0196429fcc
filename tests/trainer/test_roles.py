"""What the roles make of a model's output: which column is which token, padding, and random numbers; no process group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("omegaconf")
transformers = pytest.importorskip("transformers")

from trainer import roles  # noqa: E402
from trainer.config import Config, read_config  # noqa: E402
from trainer.data import ByteTokenizer  # noqa: E402
from trainer.engine import ValueModel, model_config, without_dropout  # noqa: E402

PAD, EOS = ByteTokenizer.pad_token_id, ByteTokenizer.eos_token_id
SIZES = [
    "model.hidden_size=32",
    "model.num_layers=2",
    "model.num_heads=2",
    "data.max_response_length=3",
    "rollout.synced_gpus=false",
]


class Engine(torch.nn.Module):
    """Stands for a DeepSpeed engine: the module, its device, and a count of steps."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.device = module, torch.device("cpu")
        self.called: list[str] = []

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.module(*arguments, **named)

    def backward(self, loss: torch.Tensor) -> None:
        self.called.append("backward")

    def step(self) -> None:
        self.called.append("step")


def small(folder: Path, *words: str) -> Config:
    """A configuration of a model with some ten thousand parameters."""
    return read_config(None, [f"out={folder}", *SIZES, *words])


def qwen(config: Config) -> torch.nn.Module:
    """The bundled model, rotary positions."""
    return transformers.AutoModelForCausalLM.from_config(model_config(config))


def gpt2(config: Config) -> torch.nn.Module:
    """A model with learned absolute positions, as `model.path` may name."""
    shape = transformers.GPT2Config(vocab_size=260, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    return transformers.AutoModelForCausalLM.from_config(shape)


def actor(monkeypatch: pytest.MonkeyPatch, config: Config, make: Any = qwen, rank: int = 0) -> roles.Actor:
    """An actor without DeepSpeed."""

    def make_model(config: Config, zero: object, critic: bool = False) -> torch.nn.Module:
        torch.manual_seed(config.train.seed)  # as engine.make_model does
        return make(config)

    monkeypatch.setattr(roles, "make_model", make_model)
    monkeypatch.setattr(roles, "make_engine", lambda model, config, lr: Engine(model))
    return roles.Actor(config, rank)


def critic(monkeypatch: pytest.MonkeyPatch, config: Config) -> roles.Critic:
    """A critic without DeepSpeed, whose head is not 0."""

    def make_model(config: Config, zero: object, critic: bool = False) -> torch.nn.Module:
        torch.manual_seed(config.train.seed)
        shape = model_config(config)
        model = ValueModel(transformers.AutoModel.from_config(shape), shape.hidden_size, torch.float32)
        torch.nn.init.normal_(model.value_head.weight)
        return model

    monkeypatch.setattr(roles, "make_model", make_model)
    monkeypatch.setattr(roles, "make_engine", lambda model, config, lr: Engine(model))
    return roles.Critic(config, 0)


def batch(prompt: list[int], response: list[int], left: int = 0, right: int = 0) -> roles.Batch:
    """One sequence with padding at either side."""
    return {
        "tokens_BT": torch.tensor([[PAD] * left + prompt + response + [PAD] * right]),
        "attention_BT": torch.tensor([[0] * left + [1] * len(prompt + response) + [0] * right]),
        "mask_BA": torch.tensor([[1.0] * len(response) + [0.0] * right]),
    }


def changed(before: torch.Tensor, after: torch.Tensor) -> list[bool]:
    """Which columns of one row differ."""
    return [bool(abs(a - b) > 1e-6) for a, b in zip(before[0], after[0], strict=True)]


# --- which column is which token ---------------------------------------------------------------


def test_logprobs_are_the_responses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Column t is the log-probability of response token t, given the prompt and the response before it."""
    made = actor(monkeypatch, small(tmp_path, "rollout.temperature=0.5"))
    found = made.logprobs(batch([65, 66], [67, 68, 69]))["logprobs_BA"]
    with torch.no_grad():
        logits = made.engine.module(torch.tensor([[65, 66, 67, 68, 69]])).logits[0] / 0.5
    expected = logits[1:4].log_softmax(-1)[torch.arange(3), torch.tensor([67, 68, 69])]
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)


def test_values_stand_before_their_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Value t knows the response up to token t - 1, and not token t: another token 1 changes value 2 only."""
    made = critic(monkeypatch, small(tmp_path))
    before, after = (made.values(batch([65, 66], response))["values_BA"] for response in ([67, 68, 69], [67, 99, 69]))
    assert changed(before, after) == [False, False, True]


def test_first_value_knows_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Value 0 is that of the whole prompt: its last token changes all values."""
    made = critic(monkeypatch, small(tmp_path))
    before, after = (made.values(batch(prompt, [67, 68, 69]))["values_BA"] for prompt in ([65, 66], [65, 99]))
    assert changed(before, after) == [True, True, True]


def test_last_token_has_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing follows the last token, so it changes no value."""
    made = critic(monkeypatch, small(tmp_path))
    before, after = (made.values(batch([65, 66], response))["values_BA"] for response in ([67, 68, 69], [67, 68, EOS]))
    assert changed(before, after) == [False, False, False]


# --- padding -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "method", "name"), [(0, "logprobs", "logprobs_BA"), (1, "values", "values_BA")])
@pytest.mark.parametrize(("left", "right"), [(1, 0), (5, 0), (0, 4), (5, 4)])
def test_padding_leaves_a_response_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: int, method: str, name: str, left: int, right: int
) -> None:
    """With rotary positions, padding at either side changes no log-probability and no value of a response."""
    made = (actor, critic)[make](monkeypatch, small(tmp_path))
    plain, padded = batch([65, 66], [67, 68, 69]), batch([65, 66], [67, 68, 69], left, right)
    expected, found = (getattr(made, method)(given)[name] for given in (plain, padded))
    torch.testing.assert_close(found[:, :3], expected, atol=1e-5, rtol=1e-5)


def test_padding_with_learned_positions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With learned absolute positions (GPT-2 as `model.path`), padding at the left changes no log-probability either."""
    made = actor(monkeypatch, small(tmp_path), gpt2)
    expected, found = (made.logprobs(batch([65, 66], [67, 68, 69], left))["logprobs_BA"] for left in (0, 5))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


# --- rollout -----------------------------------------------------------------------------------


PROMPTS = {
    "prompt_BP": torch.tensor([[PAD, 65], [65, 66], [66, 67]]),
    "prompt_mask_BP": torch.tensor([[0, 1], [1, 1], [1, 1]]),
}


def test_generate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A response a prompt, as many columns as allowed, whatever the size of the micro batches."""
    made = actor(monkeypatch, small(tmp_path, "rollout.micro_batch_size=2"))
    assert made.generate(PROMPTS)["response_BA"].shape == (3, 3)


def test_generate_pads_behind_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where all responses end early, the columns are filled up with padding."""
    made = actor(monkeypatch, small(tmp_path))
    made.engine.module.generation_config.suppress_tokens = [token for token in range(260) if token != EOS]
    assert made.generate(PROMPTS)["response_BA"].tolist() == [[EOS, PAD, PAD]] * 3


def test_generate_samples_the_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder's generation_config.json (Qwen2.5-Instruct: repetition_penalty 1.05) does not bend the distribution."""

    def with_own_settings(config: Config) -> torch.nn.Module:
        model = qwen(config)
        model.generation_config.suppress_tokens = [token for token in range(260) if token != 7]
        return model

    made = actor(monkeypatch, small(tmp_path), with_own_settings)
    assert {7} != set(made.generate(PROMPTS)["response_BA"].flatten().tolist())


def drawn(monkeypatch: pytest.MonkeyPatch, config: Config, rank: int) -> list[float]:
    """What a rank draws once the roles of its process are made, in the order of `placement: fused`."""
    actor(monkeypatch, config, rank=rank)
    roles.Critic(config, rank)
    roles.Reference(config, rank)
    roles.sample_apart(config, rank)
    return torch.rand(3).tolist()


def test_ranks_sample_on_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks draw different numbers: otherwise the same prompt in the same row gets the same response on all of them."""
    config = small(tmp_path)
    first, second = (drawn(monkeypatch, config, rank) for rank in (0, 1))
    assert first != second


def test_ranks_sample_on_after_a_resume(tmp_path: Path) -> None:
    """A run that goes on from a checkpoint does not draw the numbers of its first steps again."""
    config = small(tmp_path)
    roles.sample_apart(config, 0)
    first = torch.rand(3).tolist()
    roles.sample_apart(config, 0, step=5)
    assert first != torch.rand(3).tolist()


# --- update ------------------------------------------------------------------------------------


def test_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every epoch sees each row once, with a step after each micro batch, and means over all of them come back."""
    monkeypatch.setattr(roles, "mean_over_ranks", lambda values, device="cpu": values)
    made = actor(monkeypatch, small(tmp_path, "algorithm.epochs=2", "train.micro_batch_size=2"))
    seen: list[int] = []

    def loss_of(micro: roles.Batch) -> tuple[torch.Tensor, dict[str, float]]:
        seen.extend(micro["row_B"].tolist())
        return micro["row_B"].float().mean(), {"watched": 1.0}

    monkeypatch.setattr(made, "loss_of", loss_of)
    found = made.update({"tokens_BT": torch.zeros(6, 1), "row_B": torch.arange(6)})
    assert found == {"actor_loss": 2.5, "watched": 1.0}
    assert made.engine.called == ["backward", "step"] * 6
    assert [list(range(6))] * 2 == [sorted(seen[:6]), sorted(seen[6:])]


def test_first_update_has_not_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the weights that scored the batch the ratio is 1: the loss is minus the mean advantage, nothing is clipped."""
    made = actor(monkeypatch, small(tmp_path, "rollout.temperature=0.7"))
    given = batch([65, 66], [67, 68, 69], left=2)
    given |= made.logprobs(given) | {"advantages_BA": torch.tensor([[1.0, 2.0, 3.0]])}
    loss, watched = made.loss_of(given)
    assert pytest.approx(-2.0, abs=1e-5) == loss.item()
    assert pytest.approx({"clip_ratio": 0.0, "approx_kl": 0.0}, abs=1e-6) == watched


def test_first_update_has_not_moved_with_dropout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Dropout is off in PPO, so that the ratio begins at 1 for every model."""
    made = actor(monkeypatch, small(tmp_path), lambda config: without_dropout(gpt2(config)))
    given = batch([65, 66], [67, 68, 69])
    given |= made.logprobs(given) | {"advantages_BA": torch.tensor([[1.0, 2.0, 3.0]])}
    made.engine.train()
    assert pytest.approx(0.0, abs=1e-6) == made.loss_of(given)[1]["approx_kl"]


def test_entropy_is_that_of_the_sampler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The bonus is for the entropy of the distribution that is sampled from: almost 0 at a temperature of almost 0."""
    made = actor(monkeypatch, small(tmp_path, "rollout.temperature=0.001", "algorithm.entropy_coef=0.1"))
    given = batch([65, 66], [67, 68, 69])
    given |= made.logprobs(given) | {"advantages_BA": torch.ones(1, 3)}
    assert made.loss_of(given)[1]["entropy"] < 1.0


# --- reward ------------------------------------------------------------------------------------


def reward(monkeypatch: pytest.MonkeyPatch, config: Config) -> roles.Reward:
    """A reward of one rank."""
    monkeypatch.setattr(roles, "mean_over_ranks", lambda values, device="cpu": values)
    return roles.Reward(config, 0, [])


def test_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Responses are read up to end-of-text: `12` then the end, and `1a1`, score 2/3 each as digits."""
    found = reward(monkeypatch, small(tmp_path)).score(
        {"response_BA": torch.tensor([[49, 50, EOS], [49, 97, 49]]), "answers": ["digit", "digit"]}
    )
    torch.testing.assert_close(found["scores_B"], torch.tensor([2 / 3, 2 / 3]))
    assert found["mask_BA"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_score_stops_at_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What stands behind end-of-text does not score."""
    found = reward(monkeypatch, small(tmp_path)).score(
        {"response_BA": torch.tensor([[49, EOS, 49]]), "answers": ["digit"]}
    )
    torch.testing.assert_close(found["scores_B"], torch.tensor([1 / 3]))
    assert found["mask_BA"].tolist() == [[1, 1, 0]]


def test_normalised_scores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scores of 1 and 0 have a standard deviation of 1/2; `raw_B` stays as it was."""
    found = reward(monkeypatch, small(tmp_path, "reward.normalize=true")).score(
        {"response_BA": torch.tensor([[49, 50, 51], [97, 97, 97]]), "answers": ["digit", "digit"]}
    )
    torch.testing.assert_close(found["scores_B"], torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(found["raw_B"], torch.tensor([1.0, 0.0]))


def test_normalised_scores_that_are_equal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When all responses score 1 there is no spread to divide by, and scores stay of that order."""
    found = reward(monkeypatch, small(tmp_path, "reward.normalize=true")).score(
        {"response_BA": torch.tensor([[49, 50, 51], [49, 50, 51]]), "answers": ["digit", "digit"]}
    )
    assert found["scores_B"].abs().max() <= 10
