"""Triton kernel of fused_ce.py: cross-entropy of logits rows and, in the same buffer, its gradient. CUDA only."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _loss_and_gradient(logits_ptr, labels_ptr, scale_ptr, loss_ptr, hit_ptr, size, stride, BLOCK: tl.constexpr):
    # Pass 1: running maximum, sum and argmax. Pass 2: (softmax - onehot) * scale over the logits.
    row = tl.program_id(0)
    base = logits_ptr + row.to(tl.int64) * stride
    cols = tl.arange(0, BLOCK)
    best = -float("inf")
    total = 0.0
    best_id = 0
    for start in range(0, size, BLOCK):
        logits = tl.load(base + start + cols, mask=start + cols < size, other=-float("inf")).to(tl.float32)
        top = tl.max(logits, axis=0)
        best_id = tl.where(top > best, tl.argmax(logits, axis=0) + start, best_id)
        new_best = tl.maximum(best, top)
        total = total * tl.exp(best - new_best) + tl.sum(tl.exp(logits - new_best), axis=0)
        best = new_best
    label = tl.load(labels_ptr + row)
    log_total = tl.log(total) + best
    tl.store(loss_ptr + row, log_total - tl.load(base + label).to(tl.float32))
    tl.store(hit_ptr + row, (best_id == label).to(tl.float32))
    scale = tl.load(scale_ptr + row)
    for start in range(0, size, BLOCK):
        at = start + cols
        logits = tl.load(base + at, mask=at < size, other=-float("inf")).to(tl.float32)
        gradient = (tl.exp(logits - log_total) - tl.where(at == label, 1.0, 0.0)) * scale
        tl.store(base + at, gradient.to(logits_ptr.dtype.element_ty), mask=at < size)


def loss_and_gradient(logits: Tensor, labels: Tensor, scale: Tensor, loss: Tensor, hits: Tensor) -> None:
    block = min(8192, triton.next_power_of_2(logits.shape[1]))
    _loss_and_gradient[(logits.shape[0],)](
        logits, labels, scale, loss, hits, logits.shape[1], logits.stride(0), BLOCK=block, num_warps=8
    )
