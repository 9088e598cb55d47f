"""Several processes that train one drafter, as `torchrun` starts them: who am I, averages, agreement. Knows no model.

Without torchrun there is one process, and nothing here communicates.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """rank 0 writes checkpoints, metrics and reports; the others only compute."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def average(self, gradients: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over the processes; one transfer for all of them."""
        tensors = list(gradients)
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.flatten() for t in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def agree(self, value: float, device: torch.device) -> float:
        """Rank 0's value, for all: clocks differ, decisions must not."""
        if self.size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared)


def join() -> Group:
    """The group that torchrun made (NCCL where there are GPUs, one for each process, else gloo), or a group of one."""
    if not dist.is_torchelastic_launched():
        return Group()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return Group(dist.get_rank(), dist.get_world_size())


def is_first_process() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def leave() -> None:
    """End the group, once rank 0 has done what it does alone."""
    if dist.is_initialized():
        dist.destroy_process_group()


def own_device(name: str) -> str:
    """`cuda` becomes this process' GPU of the host."""
    if name != "cuda" or not dist.is_torchelastic_launched():
        return name
    return f"cuda:{dist.get_node_local_rank()}"
