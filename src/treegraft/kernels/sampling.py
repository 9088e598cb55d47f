"""The twin of speculation.sampling on the device: rows with parameters of their own, which never look at one
another.

Nothing here waits for the device when `needs` is given; on CPU, where nobody waits, work that cannot matter is
left out. Shapes: R rows, V vocabulary, K sorted scores.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from treegraft.kernels.waiting import can_wait
from treegraft.speculation.sampling import FILTER_SLACK, MIN_TEMPERATURE

_HEAD = 1024  # on CPU top-p looks among so many best scores before it sorts a whole row


@dataclass(frozen=True)
class FilterNeeds:
    """Which filters any row uses, known on the host. max_top_k: the largest k in use, 0 when top-k is off in
    all."""

    max_top_k: int
    has_top_p: bool
    has_min_p: bool

    @classmethod
    def read(cls, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> "FilterNeeds":
        """From parameter tensors [R]; waits for the device where they lie on one. Greedy rows need no
        filter."""
        if len(temperature) == 0:
            return cls(0, False, False)
        is_sampled = temperature > 0
        return cls(
            max_top_k=int((top_k * is_sampled).max()),
            has_top_p=bool(((top_p < 1) & is_sampled).any()),
            has_min_p=bool(((min_p > 0) & is_sampled).any()),
        )


def filtered_scores(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    needs: FilterNeeds | None = None,
) -> Tensor:
    """Scores float32 [R, V] whose softmax is each row's distribution; rows of temperature 0 hold their
    logits.

    logits: [R, V]; temperature, top_p, min_p: float [R]; top_k: int64 [R]. Meaning and order of the filters
    as in speculation.sampling.filtered_scores. needs: read from the tensors when not given.
    """
    needs = needs or FilterNeeds.read(temperature, top_k, top_p, min_p)
    is_sampled = temperature > 0
    divisor = torch.where(is_sampled, temperature.clamp(min=MIN_TEMPERATURE), 1.0).float()
    scores_RV = logits.float() / divisor[:, None]
    vocab_size = scores_RV.shape[-1]
    if needs.max_top_k > 0:
        counts = torch.where(is_sampled & (top_k > 0), top_k.clamp(max=vocab_size), vocab_size)
        sorted_RK = scores_RV.topk(min(needs.max_top_k, vocab_size), dim=-1).values
        scores_RV = _keep_first(scores_RV, counts, sorted_RK)
    if needs.has_top_p:
        scores_RV = _keep_top_p(scores_RV, torch.where(is_sampled, top_p.double(), 1.0))
    if needs.has_min_p:
        share = torch.where(is_sampled, min_p.double(), 0.0)
        lowest = scores_RV.amax(-1).double() + share.log() - FILTER_SLACK
        scores_RV = scores_RV.masked_fill(scores_RV < lowest[:, None], -torch.inf)
    return scores_RV


def choose(scores: Tensor, noise: Tensor | None) -> Tensor:
    """argmax of scores + noise, ties to the lowest id: int64 [R]. scores: [R, V]; noise: float32 [R, V], zero
    in greedy rows, or None when all are greedy."""
    return (scores if noise is None else scores + noise).argmax(-1)


def _keep_top_p(scores_RV: Tensor, top_p: Tensor) -> Tensor:
    if not can_wait(scores_RV):
        return _keep_mass(scores_RV, top_p, scores_RV.sort(-1, descending=True).values)
    rows = (top_p < 1).nonzero().squeeze(-1)
    subset, wanted = scores_RV[rows], top_p[rows]
    head = subset.topk(min(_HEAD, subset.shape[-1]), dim=-1).values
    if bool((_mass(subset, head)[:, -1] < wanted - FILTER_SLACK).any()):
        head = subset.sort(-1, descending=True).values
    return scores_RV.index_copy(0, rows, _keep_mass(subset, wanted, head))


def _keep_mass(scores_RV: Tensor, top_p: Tensor, sorted_RK: Tensor) -> Tensor:
    num_below = (_mass(scores_RV, sorted_RK) < (top_p - FILTER_SLACK)[:, None]).sum(-1)
    counts = torch.where(top_p < 1, (num_below + 1).clamp(max=sorted_RK.shape[-1]), scores_RV.shape[-1])
    return _keep_first(scores_RV, counts, sorted_RK)


def _mass(scores_RV: Tensor, sorted_RK: Tensor) -> Tensor:
    """float64 [R, K]: probability of the best 1, 2, ... K tokens of each row."""
    best = sorted_RK[:, :1].double()
    total = (scores_RV.double() - best).exp().sum(-1, keepdim=True)
    return (sorted_RK.double() - best).exp().cumsum(-1) / total


def _keep_first(scores_RV: Tensor, counts: Tensor, sorted_RK: Tensor) -> Tensor:
    """-inf for all but the first counts[r] of row r in the order (score descending, id ascending); a count of
    V keeps the row. sorted_RK: the best K scores, descending, K >= every count below V."""
    num_sorted = sorted_RK.shape[-1]
    last = sorted_RK.gather(-1, (counts - 1).clamp(max=num_sorted - 1)[:, None])
    last = torch.where((counts < scores_RV.shape[-1])[:, None], last, -torch.inf)
    is_equal, is_above = scores_RV == last, scores_RV > last
    room = counts - is_above.sum(-1)
    if not can_wait(scores_RV) or bool((is_equal.sum(-1) > room).any()):
        is_equal &= is_equal.cumsum(-1) <= room[:, None]
    return scores_RV.masked_fill(~(is_above | is_equal), -torch.inf)
