"""The decode-step parts: the plain ones against formulas, the Triton kernels against the plain ones (interpreted)."""

import os
import subprocess
import sys

import pytest
import torch

from treegraft.kernels import decode_step as step

B, H, K, D, T, E = 3, 6, 2, 16, 40, 24


def parts(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)

    def random(*size):
        return torch.randn(*size, generator=generator).to(dtype)

    cache = (random(B, K, T, D), random(B, K, T, D))
    table = step.rope_table(1.0 / 100 ** (torch.arange(0, D, 2) / D), 1.0, T)
    return random(B, (H + 2 * K) * D), cache, table, random(H + K, D), random


def test_attention_after_store_is_causal_attention_with_this_row():
    qkv, cache, table, _, _ = parts()
    raw = qkv.clone().view(B, H + 2 * K, D)
    position = torch.tensor([7])
    step.rope_store(qkv, None, table, position, cache, H, 1e-5)
    out = step.attend_cached(qkv, position, cache, H).view(B, H, D)
    first, second = raw.chunk(2, -1)
    cos, sin = table[0][7], table[1][7]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    torch.testing.assert_close(cache[0][:, :, 7], turned[:, H : H + K])
    torch.testing.assert_close(cache[1][:, :, 7], raw[:, H + K :])
    for head in range(H):
        keys, values = cache[0][:, head // (H // K), :8], cache[1][:, head // (H // K), :8]
        scores = (turned[:, head, None] * keys).sum(-1) / D**0.5
        torch.testing.assert_close(out[:, head], (scores.softmax(-1)[..., None] * values).sum(1))


def test_sampling_follows_temperature_and_min_p():
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.08, 0.02]])).expand(4000, 4).contiguous()
    temperature, min_p = torch.ones(4000), torch.full((4000,), 0.1)
    temperature[:10] = 0
    drawn = step.sample(logits, temperature, min_p, torch.tensor([5, 1]))
    assert (drawn[:10] == 0).all()
    shares = torch.bincount(drawn[10:], minlength=4) / 3990
    expected = torch.tensor([0.6, 0.3, 0.08, 0.0]) / 0.98
    assert (shares - expected).abs().max() < 0.03
    assert torch.equal(drawn, step.sample(logits, temperature, min_p, torch.tensor([5, 1])))
    assert not torch.equal(drawn, step.sample(logits, temperature, min_p, torch.tensor([5, 2])))


def check_triton_kernels():
    """Run with TRITON_INTERPRET=1 (or, on a GPU, as it is)."""
    from treegraft.kernels import decode_step_triton as kernels
    from treegraft.kernels import fused_ce, fused_ce_triton

    for norm_in_use in (False, True):
        qkv, cache, table, qk_norm, _ = parts()
        other, other_cache = qkv.clone(), (cache[0].clone(), cache[1].clone())
        for at in (0, 9, 33):
            position = torch.tensor([at])
            norm = qk_norm if norm_in_use else None
            step.rope_store(qkv, norm, table, position, cache, H, 1e-5)
            kernels.rope_store(other, norm, table, position, other_cache, H, 1e-5)
            torch.testing.assert_close(qkv, other)
            torch.testing.assert_close(cache, other_cache)
            torch.testing.assert_close(
                step.attend_cached(qkv, position, cache, H), kernels.attend_cached(other, position, other_cache, H)
            )
    _, _, _, _, random = parts()
    x, delta, weight = random(B, E), random(B, E), random(E)
    for change in (None, delta):
        ours, theirs = x.clone(), x.clone()
        expected = step.add_rms_norm(ours, change, weight, 1e-5)
        torch.testing.assert_close(expected, kernels.add_rms_norm(theirs, change, weight, 1e-5))
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(step.silu_mul(random(B, 2 * E) * 0 + x.repeat(1, 2)), kernels.silu_mul(x.repeat(1, 2)))
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.08, 0.02]])).expand(300, 4).contiguous()
    temperature, min_p = torch.ones(300), torch.full((300,), 0.1)
    temperature[:10] = 0
    drawn = kernels.sample(logits, temperature, min_p, torch.tensor([5, 1]))
    assert (drawn[:10] == 0).all()
    assert ((torch.bincount(drawn[10:], minlength=4) / 290 - torch.tensor([0.61, 0.31, 0.08, 0])).abs() < 0.1).all()
    logits, teacher, labels = random(7, 53), random(7, 53), torch.arange(7)
    for soft in (None, (teacher, torch.arange(7) % 2 == 0)):
        outputs = []
        for function in (fused_ce._loss_and_gradient, fused_ce_triton.loss_and_gradient):
            work, losses, hits = logits.clone(), torch.empty(7), torch.empty(7)
            function(work, labels, soft, losses, hits)
            outputs.append((work, losses, hits))
        torch.testing.assert_close(outputs[0], outputs[1])


def test_triton_kernels_equal_the_plain_ones_when_interpreted():
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    check_triton_kernels()
