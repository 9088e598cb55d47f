"""Triton kernel of fused_ce.py: cross-entropy of logits rows and, in the same buffer, its gradient. CUDA only."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _loss_and_gradient(
    logits_ptr, labels_ptr, teacher_ptr, soft_ptr, loss_ptr, hit_ptr, size, stride,
    HAS_TEACHER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Pass 1: running maxima, sums and argmax. Pass 2: softmax - wanted over the logits, and the loss of a soft row.
    row = tl.program_id(0)
    base = logits_ptr + row.to(tl.int64) * stride
    teacher = teacher_ptr + row.to(tl.int64) * stride
    cols = tl.arange(0, BLOCK)
    is_soft = False
    if HAS_TEACHER:
        is_soft = tl.load(soft_ptr + row) != 0
    best = -float("inf")
    total = 0.0
    best_id = 0
    their_best = -float("inf")
    their_total = 0.0
    for start in range(0, size, BLOCK):
        inside = start + cols < size
        logits = tl.load(base + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.max(logits, axis=0)
        best_id = tl.where(top > best, tl.argmax(logits, axis=0) + start, best_id)
        new_best = tl.maximum(best, top)
        total = total * tl.exp(best - new_best) + tl.sum(tl.exp(logits - new_best), axis=0)
        best = new_best
        if is_soft:
            theirs = tl.load(teacher + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
            new_best = tl.maximum(their_best, tl.max(theirs, axis=0))
            their_total = their_total * tl.exp(their_best - new_best) + tl.sum(tl.exp(theirs - new_best), axis=0)
            their_best = new_best
    label = tl.load(labels_ptr + row)
    log_total = tl.log(total) + best
    tl.store(hit_ptr + row, (best_id == label).to(tl.float32))
    loss = log_total - tl.load(base + label).to(tl.float32)
    their_log_total = 0.0
    if is_soft:
        their_log_total = tl.log(their_total) + their_best
    expected = 0.0
    for start in range(0, size, BLOCK):
        at = start + cols
        inside = at < size
        logits = tl.load(base + at, mask=inside, other=-float("inf")).to(tl.float32)
        wanted = tl.where(at == label, 1.0, 0.0)
        if is_soft:
            theirs = tl.load(teacher + at, mask=inside, other=-float("inf")).to(tl.float32)
            wanted = tl.exp(theirs - their_log_total)
            expected += tl.sum(tl.where(inside, wanted * (log_total - logits), 0.0), axis=0)
        gradient = tl.exp(logits - log_total) - wanted
        tl.store(base + at, gradient.to(logits_ptr.dtype.element_ty), mask=inside)
    tl.store(loss_ptr + row, tl.where(is_soft, expected, loss))


def loss_and_gradient(
    logits: Tensor, labels: Tensor, soft: tuple[Tensor, Tensor] | None, loss: Tensor, hits: Tensor
) -> None:
    teacher, is_soft = soft if soft is not None else (logits, labels)
    assert teacher.stride() == logits.stride()
    block = min(8192, triton.next_power_of_2(logits.shape[1]))
    _loss_and_gradient[(logits.shape[0],)](
        logits, labels, teacher, is_soft, loss, hits, logits.shape[1], logits.stride(0),
        HAS_TEACHER=soft is not None, BLOCK=block, num_warps=8,
    )  # fmt: skip
