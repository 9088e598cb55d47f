"""The twin of speculation.candidates on the device, batched; waits for the device nowhere.

Shapes: R rows, V vocabulary, K candidates.
"""

import torch
from torch import Tensor

from treegraft.kernels.waiting import can_wait

_LAST_ID = 2**31 - 1


def candidates(logits: Tensor, k: int, noise: Tensor | None = None, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """(log_probs float32 [R, K], ids int64 [R, K]) of logits [R, V], best first, ties to the lowest id.

    log_probs are log_softmax(logits), or log_softmax((logits + noise) / scale) with noise [R, V]. NaN counts as
    -inf; a row without a finite score, or with +inf in it, has no candidate (all -inf). K = min(k, V).
    """
    assert k >= 0
    assert scale > 0
    scores_RV = logits.float()
    if noise is not None:
        scores_RV = (scores_RV + noise) / scale
    head = _untied_head(scores_RV, k) if can_wait(scores_RV) else None
    if head is not None:
        values_RK, ids_RK = head
    else:
        scores_RV = torch.where(scores_RV.isnan(), -torch.inf, scores_RV)
        all_ids = torch.arange(scores_RV.shape[-1], device=scores_RV.device)
        keys_RK = _order_keys(scores_RV, all_ids).topk(min(k, scores_RV.shape[-1]), dim=-1).values
        ids_RK = _LAST_ID - (keys_RK & 0xFFFFFFFF)
        values_RK = scores_RV.gather(-1, ids_RK)
    log_probs_RK = values_RK - scores_RV.logsumexp(-1, keepdim=True)
    return torch.where(log_probs_RK.isnan(), -torch.inf, log_probs_RK.clamp(max=0.0)), ids_RK


def _untied_head(scores_RV: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """Sorted best k scores and ids by the plain top-k, three times as fast; None where a tie at its edge leaves open
    which ids belong to it, or there is a NaN (which it puts first)."""
    if not 0 < k < scores_RV.shape[-1]:
        return None
    values, ids = scores_RV.topk(k + 1, dim=-1)
    if bool(((values[:, k - 1] == values[:, k]) | values[:, 0].isnan()).any()):
        return None
    order = _order_keys(values[:, :k], ids[:, :k]).argsort(-1, descending=True)
    return values.gather(-1, order), ids.gather(-1, order)


def _order_keys(scores: Tensor, ids: Tensor) -> Tensor:
    """int64 keys in the order (score ascending, id descending), all different: sorting them has no ties to break.

    High half: the float's bits as an integer that orders like the float. Low half: what is left of the id range.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0: equal scores get equal bits
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) + (_LAST_ID - ids)
