"""The torch kernels on a CUDA device against the same functions on the CPU, which the NumPy oracle checks."""

import numpy as np
import pytest
import torch

from treegraft.kernels.candidates import candidates
from treegraft.kernels.noise import gumbel
from treegraft.kernels.sampling import choose, filtered_scores
from treegraft.speculation.build import build_tree
from treegraft.speculation.mask import ancestor_mask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def logits():
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(9, 5003, generator=generator) * 3
    rows[2, 17] = rows[2, 4000] = 50.0  # a tie at the top
    rows[5, :] = -torch.inf
    rows[5, 8] = 0.0
    return rows


def test_noise_is_the_same_on_both_devices():
    arguments = [torch.tensor(v) for v in ([7, -1, 2**62], [0, 1, 2**31], [0, 5, 2**32 - 1])]
    on_cpu = gumbel(*arguments, 5003)
    on_gpu = gumbel(*(a.cuda() for a in arguments), 5003).cpu()
    torch.testing.assert_close(on_gpu, on_cpu, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("k", [1, 16, 64])
def test_candidates(logits, k):
    scores, ids = candidates(logits, k)
    gpu_scores, gpu_ids = candidates(logits.cuda(), k)
    keep = torch.isfinite(scores)
    assert torch.equal(gpu_ids.cpu()[keep], ids[keep])
    torch.testing.assert_close(gpu_scores.cpu(), scores, rtol=1e-5, atol=1e-5)


def test_filters_and_choice(logits):
    rows = len(logits)
    temperature = torch.tensor([0.0, 1.0, 0.5, 2.0, 1.0, 1.0, 0.7, 1.0, 1.3])
    top_k = torch.tensor([0, 0, 3, 50, 1, 0, 0, 9, 0])
    top_p = torch.tensor([1.0, 0.9, 1.0, 0.5, 1.0, 0.9, 0.99, 1.0, 0.3])
    min_p = torch.tensor([0.0, 0.0, 0.1, 0.0, 0.0, 0.2, 0.05, 0.0, 0.0])
    arguments = (logits, temperature, top_k, top_p, min_p)
    on_cpu, on_gpu = filtered_scores(*arguments), filtered_scores(*(a.cuda() for a in arguments))
    assert torch.equal(torch.isfinite(on_gpu).cpu(), torch.isfinite(on_cpu))
    noise = gumbel(torch.arange(rows), torch.zeros(rows, dtype=torch.int64), torch.arange(rows), logits.shape[1])
    noise[0] = 0
    assert torch.equal(choose(on_gpu, noise.cuda()).cpu(), choose(on_cpu, noise))
    assert int(choose(logits.cuda(), None)[2]) == 17


def test_mask_kernel():
    from treegraft.kernels.mask import ancestor_mask as device_mask

    rng = np.random.default_rng(0)
    ids = np.tile(np.arange(8), (5, 1))
    trees = [build_tree(np.log(rng.dirichlet(np.ones(8), size=5)), ids, 20) for _ in range(3)]
    parents = torch.tensor(np.stack([tree.parents for tree in trees])).cuda()
    found = device_mask(parents, 5).cpu().numpy()
    for mask, tree in zip(found, trees, strict=True):
        assert np.array_equal(mask, ancestor_mask(tree))
