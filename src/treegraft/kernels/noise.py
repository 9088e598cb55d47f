"""The twin of speculation.noise on the device: the same cells bit for bit, batched by row.

Words of 32 bits are held in int64. A product of two wraps around, which leaves its low half right; the
arithmetic shift of its high half is masked back to 32 bits. Shapes: R rows, V vocabulary, G groups of four ids.
"""

import torch
from torch import Tensor

from treegraft.speculation.noise import KEY_STEPS, MULTIPLIERS, ROUNDS

_LOW = 0xFFFFFFFF
# Cells made at a time: on CPU the temporaries stay in the cache, on a GPU they stay below some 400 MB.
_CHUNK_CELLS_CPU = 1 << 18
_CHUNK_CELLS_GPU = 1 << 22


def cells(seeds: Tensor, choices: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """The random word of each row and token id, int64 [R, V] in [0, 2^32). Arguments as for `gumbel`."""
    groups_G = torch.arange((vocab_size + 3) // 4, dtype=torch.int64, device=seeds.device)
    lanes = _philox(groups_G, positions[:, None], choices[:, None], seeds[:, None])
    return torch.stack(lanes, dim=-1).flatten(1)[:, :vocab_size]


def gumbel(seeds: Tensor, choices: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Standard Gumbel noise, float32 [R, V], computed in float64 on the tensors' device.

    seeds: int64 [R], the bits of the unsigned 64-bit seed; choices, positions: int64 [R], in [0, 2^32).
    """
    noise_RV = torch.empty((len(seeds), vocab_size), dtype=torch.float32, device=seeds.device)
    num_cells = _CHUNK_CELLS_CPU if seeds.device.type == "cpu" else _CHUNK_CELLS_GPU
    rows_per_chunk = max(1, num_cells // max(1, vocab_size))
    for start in range(0, len(seeds), rows_per_chunk):
        rows = slice(start, start + rows_per_chunk)
        u_RV = (cells(seeds[rows], choices[rows], positions[rows], vocab_size).double() + 0.5) * 2.0**-32
        noise_RV[rows] = -torch.log(-torch.log(u_RV))
    return noise_RV


def _philox(groups: Tensor, positions: Tensor, choices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 of counters (group, position, choice, 0) under the seeds' two halves; four lanes [R, G].

    groups: [G]; the rest: [R, 1]. The words are not expanded first: until they mix, rows and groups stay apart.
    """
    a, b, c, d = groups, positions, choices, torch.zeros_like(positions)
    key_low, key_high = seeds & _LOW, (seeds >> 32) & _LOW
    for _ in range(ROUNDS):
        product_a, product_c = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (
            ((product_c >> 32) & _LOW) ^ b ^ key_low,
            product_c & _LOW,
            ((product_a >> 32) & _LOW) ^ d ^ key_high,
            product_a & _LOW,
        )
        key_low, key_high = (key_low + KEY_STEPS[0]) & _LOW, (key_high + KEY_STEPS[1]) & _LOW
    return a, b, c, d
