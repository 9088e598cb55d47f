import torch
import torch.nn.functional as F

from treegraft.kernels import fused_ce


def test_loss_and_gradient_equal_the_plain_ones(monkeypatch):
    monkeypatch.setattr(fused_ce, "CHUNK_ROWS", 3)  # several chunks, the last one short
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(8, 12, generator=generator, requires_grad=True)
    head = torch.randn(31, 12, generator=generator)
    labels, weights = torch.randint(31, (8,), generator=generator), torch.rand(8, generator=generator)
    loss, losses, hits = fused_ce.frozen_head_ce(hidden, head, labels, weights)
    (2 * loss).backward()
    other = hidden.detach().clone().requires_grad_()
    expected = F.cross_entropy(other @ head.T, labels, reduction="none")
    (2 * (expected * weights).sum()).backward()
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(loss, (expected * weights).sum())
    torch.testing.assert_close(hidden.grad, other.grad)
    assert torch.equal(hits.bool(), (other @ head.T).argmax(-1) == labels)
