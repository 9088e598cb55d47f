"""One probe pass over target and drafter before anything is served: what shapes do not show is refused by name."""

import numpy as np
import torch

from treegraft.engine.inputs import pack_blocks, pack_rows, prefill_rows
from treegraft.engine.runner import Runner
from treegraft.errors import DrafterError, ModelError

PROBE_TOKENS = 8


@torch.inference_mode()
def check_models(runner: Runner, model_name: str, drafter_name: str | None) -> None:
    """Raises ModelError or DrafterError when logits over a few arbitrary tokens are not finite.

    Writes to slots 1..8, which nobody owns yet.
    """
    vocab_size = runner.target.config.vocab_size
    tokens = [n * 7919 % vocab_size for n in range(1, PROBE_TOKENS + 1)]
    slots = np.arange(1, PROBE_TOKENS + 1)
    output = runner.forward(*pack_rows([prefill_rows(tokens, slots, slots[:0])], runner.device))
    if not torch.isfinite(runner.logits(output.hidden)).all():
        raise ModelError(f"{model_name}: its logits on a probe prompt are not finite; the checkpoint is damaged")
    if runner.drafter is None or output.tapped is None:
        return
    runner.write_context(output.tapped[0], slots - 1, slots)
    hidden = runner.draft([tokens[-1]], pack_blocks([slots], runner.drafter.config.block_size, runner.device))
    if not torch.isfinite(runner.draft_logits(hidden)).all():
        raise DrafterError(f"drafter {drafter_name}: its logits on a probe prompt are not finite; refused")
