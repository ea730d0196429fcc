"""The arithmetic of PPO on text: pure functions on tensors, every detail with its source.

Shapes: B sequences, T all tokens (prompt and response), A response tokens, V vocabulary.
A mask is 1.0 where a response token counts (up to and with end-of-text) and 0.0 behind it.

Sources: [PPO] Schulman et al. 2017 (arXiv 1707.06347); [GAE] Schulman et al. 2016 (arXiv 1506.02438);
[37] Huang et al. 2022, "The 37 implementation details of PPO"; [N+] Huang et al. 2024, "The N+ implementation
details of RLHF with PPO" (arXiv 2403.17031); [KL] Schulman 2020, "Approximating KL divergence".
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def logprobs_of(logits_BTV: Tensor, tokens_BT: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of each token given the ones before it, (B, T-1).

    The logits are divided by the temperature that sampled the tokens [N+ detail 3], and the log-softmax is taken
    in float32 whatever the model computes in.
    """
    scaled = logits_BTV[:, :-1].float() / temperature
    picked = scaled.gather(-1, tokens_BT[:, 1:, None]).squeeze(-1)
    return picked - scaled.logsumexp(-1)


def entropy_of(logits_BTV: Tensor) -> Tensor:
    """Entropy of the next-token distribution in nats, (B, T-1)."""
    scaled = F.log_softmax(logits_BTV[:, :-1].float(), dim=-1)
    return -(scaled.exp() * scaled).sum(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the places where the mask is 1; 0 if there is none. Values outside the mask never count, NaN or not."""
    return torch.where(mask > 0, values, 0.0).sum() / mask.sum().clamp(min=1.0)


def whiten(values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
    """Values with mean 0 (or their own, without `shift_mean`) and standard deviation 1 under the mask [N+ detail 8]."""
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    white = (values - mean) * (variance + 1e-8).rsqrt()
    return torch.where(mask > 0, white if shift_mean else white + mean, 0.0)


def kl_of(logprobs: Tensor, ref_logprobs: Tensor, kind: str = "k1") -> Tensor:
    """Estimate of KL(policy || reference) per token, from samples of the policy [KL].

    k1 = log p/q, without bias; k3 = q/p - 1 - log q/p, which is never negative and varies less.
    """
    difference = logprobs - ref_logprobs
    if kind == "k1":
        return difference
    return torch.exp(-difference) - 1 + difference


def token_rewards(scores_B: Tensor, kl_BA: Tensor, mask_BA: Tensor, kl_coef: float) -> Tensor:
    """Reward per token, (B, A): -kl_coef * KL at each, and the sequence's score at its last one [N+ detail 10]."""
    rewards_BA = torch.where(mask_BA > 0, -kl_coef * kl_BA, 0.0)
    last_B = mask_BA.sum(1).long().clamp(min=1) - 1
    rewards_BA[torch.arange(len(scores_B)), last_B] += scores_B
    return rewards_BA


def advantages_of(
    rewards_BA: Tensor, values_BA: Tensor, mask_BA: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and returns, both (B, A) [GAE eq. 16; 37 detail 5].

    A response ends in a terminal state, so the value behind its last token is 0. Returns are
    advantage + value, the target of the critic.
    """
    values_BA, rewards_BA = (torch.where(mask_BA > 0, given, 0.0) for given in (values_BA, rewards_BA))
    advantages_BA = torch.zeros_like(rewards_BA)
    running_B = torch.zeros_like(rewards_BA[:, 0])
    for t in reversed(range(rewards_BA.shape[1])):
        next_value_B = values_BA[:, t + 1] if t + 1 < rewards_BA.shape[1] else torch.zeros_like(running_B)
        delta_B = rewards_BA[:, t] + gamma * next_value_B - values_BA[:, t]
        running_B = (delta_B + gamma * lam * running_B) * mask_BA[:, t]
        advantages_BA[:, t] = running_B
    return advantages_BA, advantages_BA + values_BA


def policy_loss(
    logprobs_BA: Tensor, old_logprobs_BA: Tensor, advantages_BA: Tensor, mask_BA: Tensor, clip: float
) -> tuple[Tensor, dict[str, float]]:
    """The clipped surrogate, to be minimised [PPO eq. 7; 37 detail 8], and what to watch about it.

    `clip_ratio` is the share of tokens at which the clipped side was taken; `approx_kl` is k3 between the policy that
    sampled and the present one.
    """
    ratio_BA = torch.exp(torch.where(mask_BA > 0, logprobs_BA - old_logprobs_BA, 0.0))
    plain_BA = -advantages_BA * ratio_BA
    clipped_BA = -advantages_BA * ratio_BA.clamp(1 - clip, 1 + clip)
    loss = masked_mean(torch.maximum(plain_BA, clipped_BA), mask_BA)
    with torch.no_grad():
        watch = {
            "clip_ratio": masked_mean((clipped_BA > plain_BA).float(), mask_BA).item(),
            "approx_kl": masked_mean(kl_of(old_logprobs_BA, logprobs_BA, "k3"), mask_BA).item(),
        }
    return loss, watch


def value_loss(
    values_BA: Tensor, old_values_BA: Tensor, returns_BA: Tensor, mask_BA: Tensor, clip: float
) -> tuple[Tensor, dict[str, float]]:
    """Half the squared error, clipped around the old values [37 detail 9], and the share that was clipped."""
    near_BA = old_values_BA + (values_BA - old_values_BA).clamp(-clip, clip)
    plain_BA, clipped_BA = (values_BA - returns_BA) ** 2, (near_BA - returns_BA) ** 2
    loss = 0.5 * masked_mean(torch.maximum(plain_BA, clipped_BA), mask_BA)
    return loss, {"value_clip_ratio": masked_mean((clipped_BA > plain_BA).float(), mask_BA).item()}
