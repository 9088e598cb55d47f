"""The conditional head: scores of a token given the token above it, from one drafter pass. Plain tensors in and out.

A DFlash pass gives marginals: row d does not know which token the path chose at depth d - 1. The head turns the
drafter's hidden row h_d and the embedding e(x) of a parent token x into a corrected row, and the target's LM head
scores the children:

    score(y | x, d) = lm_head_y . (h_d + W_out (silu(W_gate [h_d, n(e(x))]) * W_up [h_d, n(e(x))]))

with n(v) = v / rms(v). Both projections are linear in their two parts, so that D rows and D x K parents are projected
apart and only added for each pair. Knows no tree and no noise source: whoever builds the tree passes noise in.

Shape suffixes: B sequences, D depths (block_size - 1), K candidates a depth, E hidden, R head width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.errors import UnsupportedModelError
from treegraft.models.config import HeadConfig

KIND = "pairwise"
WIDTH = "width"
NAMES = ("head.hidden.weight", "head.parent.weight", "head.output.weight")


def tensor_shapes(config: HeadConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the head's tensors in a drafter folder: gate rows lie above up rows.

    Raises UnsupportedModelError for a kind or sizes that this version does not know.
    """
    if config.kind != KIND or dict(config.sizes).keys() != {WIDTH}:
        raise UnsupportedModelError(
            f"drafter has a conditional head of kind {config.kind!r} with sizes {dict(config.sizes)}; "
            f"this version knows {KIND!r} with {WIDTH!r}; use a newer treegraft or a drafter without it"
        )
    width = config.size(WIDTH)
    shapes = ((2 * width, hidden_size), (2 * width, hidden_size), (hidden_size, width))
    return dict(zip(NAMES, shapes, strict=True))


def unit_rms(x: Tensor) -> Tensor:
    """x / rms(x) over the last dimension: embeddings differ in length by token, the head should not care."""
    return F.rms_norm(x, (x.shape[-1],), None, 1e-6)


def correct(hidden: Tensor, parents: Tensor, hidden_proj: Tensor, parent_proj: Tensor, output: Tensor) -> Tensor:
    """Corrected rows: hidden [..., E] plus the head's answer to it and to parent embeddings [..., E]; leading
    dimensions broadcast. hidden_proj, parent_proj: [2R, E]; output: [E, R]."""
    both = F.linear(hidden, hidden_proj) + F.linear(unit_rms(parents), parent_proj)
    gate, up = both.chunk(2, dim=-1)
    return hidden + F.linear(F.silu(gate) * up, output)


@dataclass(frozen=True)
class PairTables:
    """What speculation.scorer.PairwiseScorer takes, batched: root_log_probs float32 [B, K]; tables float32
    [B, D-1, K, K], where tables[:, d, i, j] = log p(candidate j at depth d + 2 | candidate i at depth d + 1)."""

    root_log_probs: Tensor
    tables: Tensor


class ConditionalHead:
    """Weights of a trained head. `source(name)` gives each tensor of `tensor_shapes`; `embed` is the target's
    embedding (ids [...] -> [..., E]), `score_rows` its LM-head rows (ids [...] -> [..., E])."""

    def __init__(
        self,
        config: HeadConfig,
        source: Callable[[str], Tensor],
        embed: Callable[[Tensor], Tensor],
        score_rows: Callable[[Tensor], Tensor],
    ) -> None:
        self.config = config
        self.hidden_proj, self.parent_proj, self.output = (source(name) for name in NAMES)
        self._embed, self._score_rows = embed, score_rows

    def pair_scores(self, hidden: Tensor, candidate_ids: Tensor) -> Tensor:
        """Raw scores float32 [B, D-1, K, K], on the scale of the drafter's logits, not normalised.

        hidden [B, D, E]: the drafter's rows 1 .. b-1 after its final norm; candidate_ids int64 [B, D, K].
        Entry [:, d, i, j]: candidate j at depth d + 2 below candidate i at depth d + 1.
        """
        rows = F.linear(hidden[:, 1:], self.hidden_proj)[:, :, None]
        parents = F.linear(unit_rms(self._embed(candidate_ids[:, :-1])), self.parent_proj)
        gate, up = (rows + parents).chunk(2, dim=-1)
        corrected = hidden[:, 1:, None] + F.linear(F.silu(gate) * up, self.output)
        children = self._score_rows(candidate_ids[:, 1:])
        return torch.matmul(corrected, children.transpose(-1, -2)).float()

    def pair_log_probs(
        self,
        hidden: Tensor,
        candidate_ids: Tensor,
        candidate_log_probs: Tensor,
        temperature: Tensor | None = None,
        noise: Tensor | None = None,
        scale: float = 1.0,
    ) -> PairTables:
        """Tables for a PairwiseScorer.

        candidate_log_probs float32 [B, D, K]: kernels.candidates' answer for the same rows, made with the same
        temperature and noise; its depth-1 row is the root's (the drafter knows the root token). The children of a
        parent share the probability mass that depth's candidates have together, since what lies outside of them is
        not scored. temperature [B] (0 counts as 1: a greedy row), noise float32 [B, D, K]: the target's noise at
        each candidate; log p = log_softmax((score / T + noise) / scale) + log(mass).
        """
        scores = self.pair_scores(hidden, candidate_ids)
        if temperature is not None:
            scores = scores / torch.where(temperature > 0, temperature, 1.0)[:, None, None, None]
        if noise is not None:
            scores = (scores + noise[:, 1:, None]) / scale
        mass = candidate_log_probs[:, 1:].logsumexp(-1)[:, :, None, None]
        allowed = candidate_log_probs[:, 1:, None] > -torch.inf
        scores = scores.masked_fill(~allowed, -torch.inf)
        tables = (scores - scores.logsumexp(-1, keepdim=True) + mass).clamp(max=0.0)
        return PairTables(candidate_log_probs[:, 0], tables)
