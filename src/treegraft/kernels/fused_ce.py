"""Cross-entropy through a frozen LM head without ever holding all logits: rows go through in chunks, and each chunk's
gradient with respect to the hidden rows is made at once (the head itself gets none).

What a row learns is a token, or a teacher's whole distribution: cross-entropy with softmax(teacher row @ head^T). Its
gradient is that of the Kullback-Leibler divergence, since the teacher's own entropy is constant.

Knows no model and no depth. Shape suffixes: R rows, E hidden, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 8192


class _FrozenHeadCE(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, teacher: Tensor | None, is_soft: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        hits = torch.empty_like(losses)
        gradient = torch.empty_like(hidden)
        for start in range(0, len(hidden), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits = hidden[rows] @ head.T
            soft = None
            if teacher is not None:
                assert is_soft is not None
                soft = (teacher[rows] @ head.T, is_soft[rows])
            _loss_and_gradient(logits, labels[rows], soft, losses[rows], hits[rows])
            torch.mm(logits, head, out=gradient[rows])
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(hits)
        return losses, hits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * gradients[0][:, None]).to(gradient.dtype), None, None, None, None


def frozen_head_ce(
    hidden: Tensor, head: Tensor, labels: Tensor, teacher: Tensor | None = None, is_soft: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(cross-entropy float32 [R] with a gradient, argmax == label float32 [R]).

    hidden [R, E]; head [V, E], no gradient; labels int64 [R]. teacher [R, E], no gradient, with is_soft bool [R]: rows
    that learn the teacher's distribution instead of the label.
    """
    losses, hits = _FrozenHeadCE.apply(hidden, head, labels, teacher, is_soft)  # type: ignore[no-untyped-call]
    return losses, hits


def _loss_and_gradient(
    logits: Tensor, labels: Tensor, soft: tuple[Tensor, Tensor] | None, losses: Tensor, hits: Tensor
) -> None:
    """Fill losses and hits [R], and turn logits [R, V] into d(loss) / d(logits), in place. soft: the teacher's logits
    [R, V] and is_soft [R]."""
    if logits.is_cuda:
        from treegraft.kernels import fused_ce_triton

        fused_ce_triton.loss_and_gradient(logits, labels, soft, losses, hits)
        return
    wide = logits.float()
    wanted = torch.zeros_like(wide).scatter_(1, labels[:, None], 1.0)
    if soft is not None:
        wanted = torch.where(soft[1][:, None], soft[0].float().softmax(-1), wanted)
    log_probs = wide.log_softmax(-1)
    losses.copy_(-(wanted * log_probs).sum(-1))
    hits.copy_(wide.argmax(-1) == labels)
    logits.copy_(log_probs.exp() - wanted)
