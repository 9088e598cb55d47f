"""Cross-entropy through a frozen LM head without ever holding all logits: rows go through in chunks, and each chunk's
gradient with respect to the hidden rows is made at once (the head itself gets none).

Knows no model and no depth. Shape suffixes: R rows, E hidden, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 8192


class _FrozenHeadCE(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        hits = torch.empty_like(losses)
        gradient = torch.empty_like(hidden)
        for start in range(0, len(hidden), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits = hidden[rows] @ head.T
            _loss_and_gradient(logits, labels[rows], weights[rows], losses[rows], hits[rows])
            torch.mm(logits, head, out=gradient[rows])
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(losses, hits)
        return (losses * weights).sum(), losses, hits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0].to(gradient.dtype), None, None, None


def frozen_head_ce(hidden: Tensor, head: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of weights * cross-entropy with a gradient, cross-entropy float32 [R], argmax == label float32 [R]).

    hidden [R, E]; head [V, E], no gradient; labels int64 [R]; weights float32 [R], no gradient. The gradient is made
    for the sum as it stands: weights carry the mean's divisor, so that it does not underflow in bf16.
    """
    loss, losses, hits = _FrozenHeadCE.apply(hidden, head, labels, weights)  # type: ignore[no-untyped-call]
    return loss, losses, hits


def _loss_and_gradient(logits: Tensor, labels: Tensor, scale: Tensor, losses: Tensor, hits: Tensor) -> None:
    """Fill losses and hits [R], and turn logits [R, V] into d(scale * loss) / d(logits), in place."""
    if logits.is_cuda:
        from treegraft.kernels import fused_ce_triton

        fused_ce_triton.loss_and_gradient(logits, labels, scale, losses, hits)
        return
    wide = logits.float()
    log_total = wide.logsumexp(-1)
    losses.copy_(log_total - wide.gather(1, labels[:, None])[:, 0])
    hits.copy_(wide.argmax(-1) == labels)
    gradient = (wide - log_total[:, None]).exp()
    gradient[torch.arange(len(labels)), labels] -= 1
    logits.copy_(gradient * scale[:, None])
