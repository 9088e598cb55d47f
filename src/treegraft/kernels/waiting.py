"""May a kernel's Python look at values? Knows nothing of what they mean."""

from torch import Tensor


def can_wait(tensor: Tensor) -> bool:
    """True on CPU, where values are there already; on a device a look would be a round trip, and none is made."""
    return tensor.device.type == "cpu"
