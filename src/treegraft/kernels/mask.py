"""The twin of speculation.mask on the device, batched. Shapes: B trees, n nodes (padded), n + 1 rows with the
root."""

import torch
from torch import Tensor


def ancestor_mask(parents: Tensor, max_depth: int) -> Tensor:
    """bool [B, n + 1, n + 1]: row i may see column j; row 0 is the root, which every row sees.

    parents: int64 [B, n], -1 for the root; padding nodes hold -1 too, see the root and themselves, and are
    seen by no other row. max_depth: at least the depth of the deepest node, known on the host (block size -
    1).
    """
    num_trees, num_nodes = parents.shape
    above = torch.nn.functional.pad(parents + 1, (1, 0))  # rows now; the root is its own parent
    mask = torch.eye(num_nodes + 1, dtype=torch.bool, device=parents.device).repeat(num_trees, 1, 1)
    ancestor = above
    for _ in range(max_depth):
        mask.scatter_(2, ancestor.unsqueeze(-1), True)
        ancestor = above.gather(1, ancestor)
    return mask


def node_positions(depths: Tensor, lengths: Tensor) -> Tensor:
    """int64 [B, n + 1], rotary positions of root and nodes. depths: int64 [B, n]; lengths: int64 [B], tokens
    with K/V."""
    return torch.nn.functional.pad(depths, (1, 0)) + lengths[:, None]
