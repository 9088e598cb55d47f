import numpy as np
import torch

from treegraft.kernels import noise
from treegraft.speculation import noise as oracle

SEEDS = [0, 1, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1]
CHOICES = [0, 1, 2**32 - 1, 7, 0, 3]
POSITIONS = [0, 9, 4096, 2**32 - 1, 17, 1]


def keys() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.array(SEEDS, np.uint64).view(np.int64)), torch.tensor(CHOICES), torch.tensor(POSITIONS)


def test_cells_equal_the_oracle_bit_for_bit() -> None:
    cells = noise.cells(*keys(), 1027)
    assert cells.dtype == torch.int64
    for row, key in enumerate(zip(SEEDS, CHOICES, POSITIONS, strict=True)):
        np.testing.assert_array_equal(cells[row].numpy(), oracle.cells(*key, 1027).astype(np.int64))


def test_gumbel_equals_the_oracle_within_the_last_bit() -> None:
    values = noise.gumbel(*keys(), 1027)
    assert values.dtype == torch.float32
    for row, key in enumerate(zip(SEEDS, CHOICES, POSITIONS, strict=True)):
        expected = oracle.gumbel(*key, 1027).astype(np.float32)
        np.testing.assert_array_max_ulp(values[row].numpy(), expected, maxulp=1)


def test_rows_made_in_chunks_equal_rows_made_alone() -> None:
    seeds = torch.arange(40)
    zeros = torch.zeros(40, dtype=torch.int64)
    together = noise.gumbel(seeds, zeros, seeds * 3, 20011)  # more than one chunk
    for row in (0, 12, 13, 39):
        alone = noise.gumbel(seeds[row : row + 1], zeros[:1], seeds[row : row + 1] * 3, 20011)
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=0)


def test_no_rows_give_no_noise() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert noise.gumbel(empty, empty, empty, 8).shape == (0, 8)
