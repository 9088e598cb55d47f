import torch
import torch.nn.functional as F

from treegraft.kernels import fused_ce


def test_loss_and_gradient_equal_the_plain_ones(monkeypatch):
    monkeypatch.setattr(fused_ce, "CHUNK_ROWS", 3)  # several chunks, the last one short
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(8, 12, generator=generator, requires_grad=True)
    head = torch.randn(31, 12, generator=generator)
    labels, weights = torch.randint(31, (8,), generator=generator), torch.rand(8, generator=generator)
    losses, hits = fused_ce.frozen_head_ce(hidden, head, labels)
    (losses * weights).sum().backward()
    other = hidden.detach().clone().requires_grad_()
    expected = F.cross_entropy(other @ head.T, labels, reduction="none")
    (expected * weights).sum().backward()
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(hidden.grad, other.grad)
    assert torch.equal(hits.bool(), (other @ head.T).argmax(-1) == labels)


def test_a_teacher_is_learnt_as_a_distribution(monkeypatch):
    monkeypatch.setattr(fused_ce, "CHUNK_ROWS", 3)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(8, 12, generator=generator, requires_grad=True)
    head, teacher = torch.randn(31, 12, generator=generator), torch.randn(8, 12, generator=generator)
    labels, is_soft = torch.randint(31, (8,), generator=generator), torch.arange(8) % 2 == 0
    losses, _ = fused_ce.frozen_head_ce(hidden, head, labels, teacher, is_soft)
    losses.sum().backward()
    other = hidden.detach().clone().requires_grad_()
    soft = F.cross_entropy(other @ head.T, (teacher @ head.T).softmax(-1), reduction="none")
    expected = torch.where(is_soft, soft, F.cross_entropy(other @ head.T, labels, reduction="none"))
    expected.sum().backward()
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(hidden.grad, other.grad)
