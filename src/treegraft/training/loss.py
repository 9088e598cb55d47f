"""Which blocks of a row are drafted, which of their tokens are learnt, and the loss. Knows no optimiser and no file.

Depth d of a block is learnt with weight w_d = exp(-(d - 1) / decay). Instead of computing all depths and weighing them,
each block draws a cutoff c with P(c >= d) = w_d and learns depths 1 .. c: the same gradient on average for half of the
LM-head products, and hits that are known without gaps up to c.

A row below depth 1 teaches either the marginal (the drafter's hidden row as it is) or the conditional (the row
corrected by the true token above it); depth 1 has the root above it, which the drafter knows.

Tokens that the target drew at T > 0 may be learnt as the distribution they were drawn from (distilling): the same
gradient on average, without the noise of the draw.

Shape suffixes: R rows, L tokens, A anchors, b block rows, D = b - 1 depths, M learnt rows, E hidden.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from treegraft.kernels.fused_ce import frozen_head_ce
from treegraft.models.target import TargetModel
from treegraft.training.network import DrafterNetwork

ROW_TILE = 256
OUT_OF_REACH = 0.25  # weight of a row that a tree of `tree_nodes` would hardly get to


@dataclass(frozen=True)
class Blocks:
    """Blocks of a batch: anchors int64 [R, A], ascending in each row; cutoffs int64 [R, A], 0 for a block that is
    padding; tokens int64 [R, A, b]: the row's own tokens from the anchor on."""

    anchors: Tensor
    cutoffs: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class Teacher:
    """hidden [R, L, E]: the target's final state at each position, which says the token after it; is_soft bool [R, L]:
    tokens that are learnt as distributions."""

    hidden: Tensor
    is_soft: Tensor


@dataclass(frozen=True)
class Learning:
    """What block_loss is asked for. num_rows: rows learnt a batch, the shallowest first when there are more.
    conditional_share: of the rows below depth 1, for the head. tree_nodes: rows whose path above them the drafter
    gives less than 1 / tree_nodes (no tree of so many nodes would hold their parent) count OUT_OF_REACH; 0: all
    rows alike."""

    num_rows: int
    conditional_share: float
    tree_nodes: int = 0


@dataclass(frozen=True)
class LossParts:
    """total: the loss, with a gradient. num_rows: learnt rows. losses, hits: float32 [2, D], sums by depth of
    cross-entropy and of argmax == token, marginal rows first; counts float32 [2, D]. run: int64 [R, A], depths hit in
    a row from 1 on (at most the cutoff)."""

    total: Tensor
    losses: Tensor
    hits: Tensor
    counts: Tensor
    run: Tensor


def random_anchors(kinds_RL: Tensor, num_anchors: int, generator: torch.Generator) -> Tensor:
    """int64 [R, A], ascending: positions with a token worth learning and another one after it, none twice; rows with
    too few of them give positions that are not, which `make_blocks` gives cutoff 0."""
    keys = torch.rand(kinds_RL.shape, generator=generator, device=kinds_RL.device)
    keys = keys.masked_fill(~can_anchor(kinds_RL), -1.0)
    return keys.topk(num_anchors, dim=1).indices.sort(dim=1).values


def can_anchor(kinds_RL: Tensor) -> Tensor:
    """bool [R, L]: the token was written by the target as a reply, and so was the next."""
    good = kinds_RL > 0
    after = torch.cat([good[:, 1:], torch.zeros_like(good[:, :1])], dim=1)
    return good & after


def next_anchors(blocks: Blocks, run_RA: Tensor, kinds_RL: Tensor, generator: torch.Generator) -> Tensor:
    """Where decoding would draft next: the root after each block's hits. Places that two blocks agree on, and those
    where nothing is left to learn, are drawn at random."""
    after = blocks.anchors + run_RA + 1
    is_inside = after < kinds_RL.shape[1]
    after = after.clamp(max=kinds_RL.shape[1] - 1)
    is_good = is_inside & (blocks.cutoffs > 0) & can_anchor(kinds_RL).gather(1, after)
    chosen = torch.zeros_like(kinds_RL, dtype=torch.float32)
    chosen.scatter_reduce_(1, after, is_good.float(), "amax")
    keys = torch.rand(kinds_RL.shape, generator=generator, device=kinds_RL.device)
    keys = keys.masked_fill(~can_anchor(kinds_RL), -1.0) + 2 * chosen
    return keys.topk(after.shape[1], dim=1).indices.sort(dim=1).values


def make_blocks(
    tokens_RL: Tensor, kinds_RL: Tensor, anchors_RA: Tensor, block_size: int, decay: float, generator: torch.Generator
) -> Blocks:
    """Blocks with cutoffs, each ended where the row, or what is worth learning of it, ends."""
    L = tokens_RL.shape[1]
    offsets = torch.arange(block_size, device=tokens_RL.device)
    places = anchors_RA[:, :, None] + offsets
    flat = places.clamp(max=L - 1).flatten(1)
    tokens = tokens_RL.gather(1, flat).view(places.shape)
    good = (kinds_RL.gather(1, flat).view(places.shape) > 0) & (places < L)
    length = good.long().cumprod(-1).sum(-1) - 1
    draw = torch.rand(anchors_RA.shape, generator=generator, device=tokens_RL.device).clamp(min=1e-6)
    cutoffs = 1 + (-decay * draw.log()).long()
    return Blocks(anchors_RA, cutoffs.clamp(max=block_size - 1).minimum(length).clamp(min=0), tokens)


def num_learnt_rows(num_blocks: int, block_size: int, decay: float) -> int:
    """Rows to make room for: what the cutoffs give on average and a little more, in whole tiles."""
    mean = sum(torch.exp(-torch.arange(block_size - 1) / decay).tolist())
    return min(num_blocks * (block_size - 1), ROW_TILE * (int(num_blocks * mean * 1.03) // ROW_TILE + 1))


def block_loss(
    network: DrafterNetwork,
    target: TargetModel,
    hidden: Tensor,
    blocks: Blocks,
    teacher: Teacher | None,
    learning: Learning,
    generator: torch.Generator,
) -> LossParts:
    """Mean cross-entropy over the learnt rows of hidden [R, A, b, E]."""
    R, A, b, E = hidden.shape
    depths_D = torch.arange(1, b, device=hidden.device)
    is_learnt = (depths_D <= blocks.cutoffs[:, :, None]).flatten()
    # Learnt rows first, by depth: a fixed number of rows keeps shapes constant and waits for no device.
    order = torch.where(is_learnt, depths_D.repeat(R * A), b + 1).argsort(stable=True)[: learning.num_rows]
    is_real = is_learnt[order]
    depth_M = order % (b - 1)
    hidden_ME = hidden[:, :, 1:].reshape(-1, E)[order]
    labels = blocks.tokens[:, :, 1:].flatten()[order]
    is_conditional = torch.zeros_like(is_real)
    if network.has_head and learning.conditional_share > 0:
        draw = torch.rand(len(order), generator=generator, device=hidden.device)
        is_conditional = (depth_M > 0) & (draw < learning.conditional_share)
        parents = target.embed(blocks.tokens[:, :, :-1].flatten()[order]).to(hidden.dtype)
        hidden_ME = torch.where(is_conditional[:, None], network.conditional(hidden_ME, parents), hidden_ME)
    soft = _taught(teacher, blocks, order, depth_M) if teacher is not None else (None, None)
    losses, hits = frozen_head_ce(hidden_ME, target.head.weight, labels, *soft)
    real = is_real.float()
    weights = real
    if learning.tree_nodes:
        above = torch.zeros(R * A * (b - 1), device=hidden.device)
        above[order] = losses.detach() * real
        above = above.view(R * A, b - 1).cumsum(-1).flatten()[order] - losses.detach()
        weights = real * torch.where(above <= math.log(learning.tree_nodes), 1.0, OUT_OF_REACH)
    total = (losses * weights).sum() / weights.sum().clamp(min=1)
    place = depth_M + is_conditional * (b - 1)
    sums = torch.zeros((3, 2 * (b - 1)), device=hidden.device)
    sums.index_add_(1, place, torch.stack([losses.detach() * real, hits * real, real]))
    all_hits = torch.zeros(R * A * (b - 1), device=hidden.device)
    all_hits[order] = hits * real
    run = all_hits.view(R, A, b - 1).cumprod(-1).sum(-1).long()
    losses_2D, hits_2D, counts_2D = sums.view(3, 2, b - 1)
    return LossParts(total, losses_2D, hits_2D, counts_2D, run)


def _taught(teacher: Teacher, blocks: Blocks, order_M: Tensor, depth_M: Tensor) -> tuple[Tensor, Tensor]:
    """(the target's state that says each learnt row's token [M, E], whether it is learnt as a distribution [M])."""
    L = teacher.is_soft.shape[1]
    block_M = torch.div(order_M, blocks.tokens.shape[2] - 1, rounding_mode="floor")
    row_M = torch.div(block_M, blocks.anchors.shape[1], rounding_mode="floor")
    says_M = (blocks.anchors.flatten()[block_M] + depth_M).clamp(max=L - 2)
    return teacher.hidden[row_M, says_M], teacher.is_soft[row_M, says_M + 1]
