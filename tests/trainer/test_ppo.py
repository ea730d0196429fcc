"""The arithmetic of PPO against numbers worked out by hand, and against other definitions of the same thing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("omegaconf")

from trainer import ppo  # noqa: E402

QUICK = settings(max_examples=60, deadline=None, database=None, derandomize=True)
SHARES = st.floats(0, 1)
NUMBERS = st.floats(-10, 10)
LOGPROBS = st.floats(-20, 0)


def row(*numbers: float) -> torch.Tensor:
    """One sequence, (1, A), in float64."""
    return torch.tensor([numbers], dtype=torch.float64)


def close(expected: list[float], tensor: torch.Tensor) -> bool:
    """Whether the tensor holds these numbers, row after row."""
    return tensor.flatten().tolist() == pytest.approx(expected, abs=1e-6)


# --- log-probabilities and entropy -------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logprobs_are_log_softmax(temperature: float) -> None:
    """Each token's log-probability is torch's log-softmax of the logits before it, divided by the temperature."""
    generator = torch.Generator().manual_seed(0)
    logits_BTV = torch.randn(2, 4, 5, generator=generator)
    tokens_BT = torch.randint(5, (2, 4), generator=generator)
    expected = torch.log_softmax(logits_BTV[:, :-1] / temperature, -1).gather(-1, tokens_BT[:, 1:, None])[..., 0]
    torch.testing.assert_close(ppo.logprobs_of(logits_BTV, tokens_BT, temperature), expected)


def test_logprobs_by_hand() -> None:
    """Logits of log 1 and log 3 make probabilities of 1/4 and 3/4, and of 1/10 and 9/10 at temperature 0.5."""
    logits_BTV = torch.tensor([[[0.0, math.log(3)], [0.0, 0.0]]])
    assert close([math.log(0.75)], ppo.logprobs_of(logits_BTV, torch.tensor([[0, 1]])))
    assert close([math.log(0.1)], ppo.logprobs_of(logits_BTV, torch.tensor([[0, 0]]), 0.5))


def test_logprobs_ignore_the_last_logits_and_the_first_token() -> None:
    """Nothing comes behind the last logits, and nothing stands before the first token."""
    logits_BTV = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    other_BTV = logits_BTV.clone()
    other_BTV[:, -1] = 7.0
    expected = ppo.logprobs_of(logits_BTV, torch.tensor([[0, 1, 2]]))
    assert torch.equal(expected, ppo.logprobs_of(other_BTV, torch.tensor([[3, 1, 2]])))


def test_logprobs_of_half_precision() -> None:
    """The softmax of bfloat16 logits is taken in float32: 1000 equal logits make log-probabilities of -log 1000."""
    logits_BTV = torch.full((1, 2, 1000), 3.0, dtype=torch.bfloat16)
    found = ppo.logprobs_of(logits_BTV, torch.tensor([[0, 1]]))
    assert torch.float32 == found.dtype
    assert close([-math.log(1000)], found)


def test_logprobs_of_large_logits() -> None:
    """Logits of hundreds, whose exponentials are beyond float32, do not overflow."""
    logits_BTV = torch.tensor([[[500.0, 500.0], [0.0, 0.0]]])
    assert pytest.approx(-math.log(2), abs=1e-4) == ppo.logprobs_of(logits_BTV, torch.tensor([[0, 1]])).item()


@pytest.mark.parametrize("size", [2, 7, 260])
def test_entropy_of_equal_logits(size: int) -> None:
    """A uniform distribution over V tokens has an entropy of log V."""
    assert close([math.log(size)], ppo.entropy_of(torch.zeros(1, 2, size)))


def test_entropy_of_certainty() -> None:
    """A distribution that is sure has an entropy of 0, not of NaN."""
    assert close([0.0], ppo.entropy_of(torch.tensor([[[1000.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])))


# --- masks -------------------------------------------------------------------------------------


def test_masked_mean() -> None:
    """Only places under the mask count: (1 + 4) / 2."""
    assert ppo.masked_mean(row(1, 4, 99), row(1, 1, 0)).item() == 2.5


def test_masked_mean_of_nothing() -> None:
    """An empty mask makes 0, not NaN."""
    assert ppo.masked_mean(row(1, 2), row(0, 0)).item() == 0.0


def test_whiten_by_hand() -> None:
    """2, 4 and 6 have mean 4 and variance 8/3; what is masked becomes 0."""
    spread = math.sqrt(8 / 3)
    assert close([-2 / spread, 0.0, 2 / spread, 0.0], ppo.whiten(row(2, 4, 6, 99), row(1, 1, 1, 0)))


def test_whiten_keeps_the_mean() -> None:
    """Without a shift, values keep their mean of 4 and have a standard deviation of 1."""
    spread = math.sqrt(8 / 3)
    assert close([4 - 2 / spread, 4.0, 4 + 2 / spread, 0.0], ppo.whiten(row(2, 4, 6, 99), row(1, 1, 1, 0), False))


def test_whiten_of_equal_values() -> None:
    """Values without any spread become 0, not NaN."""
    assert close([0.0, 0.0], ppo.whiten(row(3, 3), row(1, 1)))


@QUICK
@given(st.lists(NUMBERS, min_size=2, max_size=8).filter(lambda values: max(values) - min(values) > 0.1), NUMBERS)
def test_whiten_has_mean_0_and_spread_1(values: list[float], junk: float) -> None:
    """Under the mask the mean is 0 and the standard deviation 1, whatever stands behind it."""
    mask = row(*[1] * len(values), 0)
    white = ppo.whiten(row(*values, junk), mask)
    assert pytest.approx(0, abs=1e-6) == ppo.masked_mean(white, mask).item()
    assert pytest.approx(1, abs=1e-4) == ppo.masked_mean(white**2, mask).item()


# --- KL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ratio", "expected"),
    [
        pytest.param("k1", 2.0, math.log(2), id="k1, policy twice as sure"),
        pytest.param("k1", 0.5, -math.log(2), id="k1, policy half as sure: negative"),
        pytest.param("k3", 2.0, 0.5 - 1 + math.log(2), id="k3, policy twice as sure"),  # q/p - 1 - log q/p
        pytest.param("k3", 0.5, 2.0 - 1 - math.log(2), id="k3, policy half as sure: positive"),
    ],
)
def test_kl_by_hand(kind: str, ratio: float, expected: float) -> None:
    """Each estimator as a function of p/q."""
    assert close([expected], ppo.kl_of(row(-3 + math.log(ratio)), row(-3), kind))


@QUICK
@given(LOGPROBS, LOGPROBS)
def test_k3_is_never_negative(logprob: float, reference: float) -> None:
    """k3 is at least 0 for any two log-probabilities (to the last bits of float64)."""
    assert ppo.kl_of(row(logprob), row(reference), "k3").item() >= -1e-12


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_kl_of_equal_policies(kind: str) -> None:
    """A policy that is the reference has no KL."""
    assert close([0.0, 0.0], ppo.kl_of(row(-1, -7), row(-1, -7), kind))


@QUICK
@pytest.mark.parametrize("kind", ["k1", "k3"])
@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=5), st.data())
def test_kl_without_bias(kind: str, weights: list[float], data: st.DataObject) -> None:
    """Both estimators, weighed with the policy's own probabilities, sum up to KL(policy || reference)."""
    others = data.draw(st.lists(st.floats(0.05, 1), min_size=len(weights), max_size=len(weights)))
    policy, reference = (torch.tensor(w, dtype=torch.float64) / sum(w) for w in (weights, others))
    expected = (policy * (policy / reference).log()).sum().item()
    found = (policy * ppo.kl_of(policy.log(), reference.log(), kind)).sum().item()
    assert pytest.approx(expected, abs=1e-9) == found


# --- rewards and advantages --------------------------------------------------------------------


def test_token_rewards_by_hand() -> None:
    """-0.1 * KL at each token, the score at the last token under the mask, and 0 behind it."""
    found = ppo.token_rewards(
        torch.tensor([5.0, 7.0]),
        torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        kl_coef=0.1,
    )
    assert close([-0.1, 4.8, 0.0, -0.4, -0.5, 6.4], found)


def test_token_rewards_leave_the_kl_alone() -> None:
    """The KL is read afterwards for the metrics, so it must not be written to."""
    kl_BA = torch.ones(1, 2)
    ppo.token_rewards(torch.tensor([5.0]), kl_BA, torch.ones(1, 2), 1.0)
    assert close([1.0, 1.0], kl_BA)


def test_advantages_by_hand() -> None:
    """Two sequences of three and two tokens, gamma and lambda 1/2 (their product 1/4); a 9 stands behind the mask.

    First: rewards 1 0 2, values 0.5 1 0.5.
        t=2: delta = 2            - 0.5 =  1.5     A =  1.5
        t=1: delta = 0 + 0.5 * 0.5 - 1  = -0.75    A = -0.75 + 0.25 * 1.5    = -0.375
        t=0: delta = 1 + 0.5 * 1 - 0.5  =  1.0     A =  1.0  + 0.25 * -0.375 =  0.90625
    Second: rewards 0 4, values 2 1.
        t=1: delta = 4            - 1   =  3.0     A =  3.0
        t=0: delta = 0 + 0.5 * 1  - 2   = -1.5     A = -1.5  + 0.25 * 3.0    = -0.75
    """
    advantages_BA, returns_BA = ppo.advantages_of(
        torch.tensor([[1.0, 0.0, 2.0], [0.0, 4.0, 9.0]]),
        torch.tensor([[0.5, 1.0, 0.5], [2.0, 1.0, 9.0]]),
        torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]),
        gamma=0.5,
        lam=0.5,
    )
    assert advantages_BA.tolist() == [[0.90625, -0.375, 1.5], [-0.75, 3.0, 0.0]]
    assert returns_BA.tolist() == [[1.40625, 0.625, 2.0], [1.25, 4.0, 0.0]]


def test_advantages_without_discount() -> None:
    """With gamma and lambda 1 the returns are the sums of the rewards to come, whatever the critic says."""
    advantages_BA, returns_BA = ppo.advantages_of(row(1, 2, 3), row(7, 8, 9), row(1, 1, 1), 1.0, 1.0)
    assert close([6 - 7, 5 - 8, 3 - 9], advantages_BA)
    assert close([6, 5, 3], returns_BA)


def test_advantages_of_one_step() -> None:
    """With lambda 0 they are the one-step errors: reward + gamma * next value - value."""
    advantages_BA, _ = ppo.advantages_of(row(1, 2, 3), row(7, 8, 9), row(1, 1, 1), 0.5, 0.0)
    assert close([1 + 4 - 7, 2 + 4.5 - 8, 3 - 9], advantages_BA)


def test_advantages_of_values_that_are_zero() -> None:
    """The value head begins with 0, and then each advantage is its return."""
    advantages_BA, returns_BA = ppo.advantages_of(row(0, 0, 1), row(0, 0, 0), row(1, 1, 1), 1.0, 0.95)
    assert close([0.95**2, 0.95, 1.0], advantages_BA)
    assert torch.equal(advantages_BA, returns_BA)


def defined(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """GAE as the mix of n-step advantages, weighed by lambda: O(n^2), and without the recursion of ppo.py.

    A(n) = r(t) + gamma r(t+1) + ... + gamma^n V(t+n) - V(t); all that reach the end of the sequence are the same one, and
    have the rest of the weight together.
    """

    def n_step(t: int, n: int) -> float:
        seen = sum(gamma**i * rewards[t + i] for i in range(n))
        ahead = gamma**n * values[t + n] if t + n < len(values) else 0.0
        return seen + ahead - values[t]

    found = []
    for t in range(len(rewards)):
        left = len(rewards) - t
        inner = sum((1 - lam) * lam ** (n - 1) * n_step(t, n) for n in range(1, left))
        found.append(inner + lam ** (left - 1) * n_step(t, left))
    return found


@QUICK
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=7), st.lists(NUMBERS, max_size=3), SHARES, SHARES)
def test_advantages_by_definition(
    tokens: list[tuple[float, float]], junk: list[float], gamma: float, lam: float
) -> None:
    """The backward recursion is the lambda-weighted mix of n-step advantages, and what is padded does not matter."""
    rewards, values = (list(column) for column in zip(*tokens, strict=True))
    mask = row(*[1] * len(tokens), *[0] * len(junk))
    advantages_BA, returns_BA = ppo.advantages_of(row(*rewards, *junk), row(*values, *junk), mask, gamma, lam)
    expected = defined(rewards, values, gamma, lam)
    assert close([*expected, *[0.0] * len(junk)], advantages_BA)
    assert close([a + v for a, v in zip(expected, values, strict=True)] + [0.0] * len(junk), returns_BA)


# --- losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "clipped"),
    [
        pytest.param(1.0, 1.5, -1.2, 1.0, id="good token, already much likelier: clipped"),  # max(-1.5, -1.2)
        pytest.param(1.0, 0.5, -0.5, 0.0, id="good token, less likely: free to come back"),  # max(-0.5, -0.8)
        pytest.param(-1.0, 1.5, 1.5, 0.0, id="bad token, likelier: free to come back"),  # max(1.5, 1.2)
        pytest.param(-1.0, 0.5, 0.8, 1.0, id="bad token, already much less likely: clipped"),  # max(0.5, 0.8)
        pytest.param(2.0, 1.1, -2.2, 0.0, id="good token, within the range"),
        pytest.param(-2.0, 0.9, 1.8, 0.0, id="bad token, within the range"),
        pytest.param(0.0, 1.5, 0.0, 0.0, id="no advantage"),
    ],
)
def test_policy_loss_of_one_token(advantage: float, ratio: float, loss: float, clipped: float) -> None:
    """The larger of the plain and the clipped side, at a range of 0.2; where it is clipped, no gradient is left."""
    logprobs = row(-2 + math.log(ratio)).requires_grad_()
    found, watched = ppo.policy_loss(logprobs, row(-2), row(advantage), row(1), clip=0.2)
    found.backward()
    assert pytest.approx(loss) == found.item()
    assert clipped == watched["clip_ratio"]
    assert pytest.approx(-advantage * ratio * (1 - clipped)) == logprobs.grad.item()  # d(ratio)/d(logprob) = ratio


def test_policy_loss_of_many_tokens() -> None:
    """The mean over the mask of -1.2, -0.5, 1.5 and 0.8 is 0.15; half of them were clipped."""
    ratios = torch.tensor([[1.5, 0.5, 1.5, 0.5, 30.0]], dtype=torch.float64)
    loss, watched = ppo.policy_loss(
        ratios.log(), torch.zeros(1, 5, dtype=torch.float64), row(1, 1, -1, -1, 100), row(1, 1, 1, 1, 0), clip=0.2
    )
    assert pytest.approx(0.15) == loss.item()
    # KL(old || new), k3: ratio - 1 - log ratio, two times each of 1.5 and 0.5
    expected = {"clip_ratio": 0.5, "approx_kl": ((0.5 - math.log(1.5)) + (-0.5 - math.log(0.5))) / 2}
    assert pytest.approx(expected) == watched


def test_policy_loss_of_the_same_policy() -> None:
    """Before the first step the ratio is 1: the loss is minus the mean advantage, and nothing is clipped or has moved."""
    loss, watched = ppo.policy_loss(row(-1, -2), row(-1, -2), row(3, 5), row(1, 1), 0.2)
    assert loss.item() == -4.0
    assert watched == {"clip_ratio": 0.0, "approx_kl": 0.0}


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_policy_loss_goes_the_right_way(advantage: float) -> None:
    """A step down the gradient makes a token of positive advantage likelier, and one of negative advantage less likely."""
    tokens_BT = torch.tensor([[0, 2]])
    logits_BTV = torch.zeros(1, 2, 4, requires_grad=True)
    before = ppo.logprobs_of(logits_BTV, tokens_BT)
    loss, _ = ppo.policy_loss(before, before.detach(), torch.tensor([[advantage]]), torch.ones(1, 1), 0.2)
    loss.backward()
    after = ppo.logprobs_of(logits_BTV.detach() - 0.1 * logits_BTV.grad, tokens_BT)
    assert (advantage > 0) == (after > before).item()


@pytest.mark.parametrize(
    ("value", "target", "loss", "clipped"),
    [
        pytest.param(1.0, 0.0, 0.5, 0.0, id="away from the target: the plain error is larger"),  # 0.5 max(1, 0.04)
        pytest.param(1.0, 2.0, 1.62, 1.0, id="towards it, too far at once"),  # 0.5 * max(1, (0.2 - 2)^2)
        pytest.param(-1.0, -2.0, 1.62, 1.0, id="towards it, downwards"),
        pytest.param(-1.0, 0.0, 0.5, 0.0, id="away, downwards"),
        pytest.param(0.1, 1.0, 0.405, 0.0, id="within the range"),  # 0.5 * 0.9^2
    ],
)
def test_value_loss_of_one_token(value: float, target: float, loss: float, clipped: float) -> None:
    """Half the larger squared error of the value and the value held near the old one, which was 0, at a range of 0.2."""
    values = row(value).requires_grad_()
    found, watched = ppo.value_loss(values, row(0), row(target), row(1), clip=0.2)
    found.backward()
    assert pytest.approx(loss) == found.item()
    assert {"value_clip_ratio": clipped} == watched
    assert pytest.approx((value - target) * (1 - clipped)) == values.grad.item()


def test_value_loss_of_many_tokens() -> None:
    """The mean over the mask of 0.5 and 1.62; one of the two was clipped."""
    loss, watched = ppo.value_loss(row(1, 1, 50), row(0, 0, 0), row(0, 2, 0), row(1, 1, 0), 0.2)
    assert pytest.approx(1.06) == loss.item()
    assert watched == {"value_clip_ratio": 0.5}


# --- what stands behind the mask ---------------------------------------------------------------

MASK = row(1, 1, 0)
FIRST, SECOND = row(-1, -2, 0), row(-1.5, -1.9, 0)


def with_junk(tensor: torch.Tensor, junk: float) -> torch.Tensor:
    """The tensor with something else behind the mask."""
    return torch.where(MASK > 0, tensor, torch.full_like(tensor, junk))


ALL = {
    "masked_mean": lambda a, b: ppo.masked_mean(a, MASK),
    "whiten": lambda a, b: ppo.whiten(a, MASK),
    "token_rewards k1": lambda a, b: ppo.token_rewards(torch.ones(1).double(), ppo.kl_of(a, b, "k1"), MASK, 0.1),
    "token_rewards k3": lambda a, b: ppo.token_rewards(torch.ones(1).double(), ppo.kl_of(a, b, "k3"), MASK, 0.1),
    "advantages_of": lambda a, b: torch.cat(ppo.advantages_of(a, b, MASK, 0.9, 0.8)),
    "policy_loss": lambda a, b: ppo.policy_loss(a, b, row(1, -1, 5), MASK, 0.2)[0],
    "policy_loss's figures": lambda a, b: torch.tensor(
        list(ppo.policy_loss(a, b, row(1, -1, 5), MASK, 0.2)[1].values())
    ),
    "value_loss": lambda a, b: ppo.value_loss(a, b, row(1, 2, 3), MASK, 0.2)[0],
    "value_loss's figure": lambda a, b: torch.tensor(list(ppo.value_loss(a, b, row(1, 2, 3), MASK, 0.2)[1].values())),
}
"""Name -> what it makes of two tensors under MASK."""
Made = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("made", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("junk", [-100.0, 3.0, 100.0])
def test_junk_behind_the_mask(made: Made, junk: float) -> None:
    """What stands behind the mask changes nothing."""
    expected = made(FIRST, SECOND)
    torch.testing.assert_close(made(with_junk(FIRST, junk), with_junk(SECOND, -junk)), expected)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"value_loss's figure"}))  # which only compares
def test_nan_behind_the_mask(name: str) -> None:
    """What stands behind the mask changes nothing, not even if it is no number."""
    expected = ALL[name](FIRST, SECOND)
    torch.testing.assert_close(ALL[name](with_junk(FIRST, math.nan), with_junk(SECOND, math.nan)), expected)


def test_overflow_behind_the_mask() -> None:
    """A ratio that overflows at a masked token does not make the loss NaN."""
    loss, _ = ppo.policy_loss(row(-1, -2, 0), row(-1, -2, -800), row(1, 1, -1), MASK, 0.2)
    assert loss.item() == -1.0


@pytest.mark.parametrize("junk", [-7.0, 70.0])
def test_no_gradient_behind_the_mask(junk: float) -> None:
    """Padding does not teach: the gradient at masked places is exactly 0."""
    logprobs, values = with_junk(FIRST, junk).requires_grad_(), with_junk(FIRST, junk).requires_grad_()
    ppo.policy_loss(logprobs, SECOND, row(1, 1, 1), MASK, 0.2)[0].backward()
    ppo.value_loss(values, SECOND, row(1, 1, 1), MASK, 0.2)[0].backward()
    assert [logprobs.grad[0, 2].item(), values.grad[0, 2].item()] == [0.0, 0.0]
