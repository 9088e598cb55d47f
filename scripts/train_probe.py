"""Probe of a GPU for training: kernels, graphs and attention against their plain twins, then rates of both stages.

Needs CUDA and no model: a target of SmolLM2-135M's shape with random weights. Prints one line a check.
"""

import argparse
import time
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import torch

from treegraft.kernels import decode_step
from treegraft.models.config import ModelConfig
from treegraft.models.target import TargetModel, tensor_shapes
from treegraft.training.block_attention import attend_blocks, dense_mask, flex, tile_mask
from treegraft.training.build import drafter_config
from treegraft.training.config import DataConfig, DrafterShape, RunConfig, TrainConfig
from treegraft.training.corpus.conversation import Turns
from treegraft.training.corpus.generate import ASSISTANT, Generator, Opening
from treegraft.training.corpus.shards import CorpusManifest, Rows
from treegraft.training.loop import Corpus, Trainer

TURNS = Turns(prefix=(1, 4093, 198), to_assistant=(2, 198, 1, 520), to_user=(2, 198, 1, 4093), end_token=2)


def random_target(device: torch.device) -> TargetModel:
    config = ModelConfig(
        architecture="llama", hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3,
        head_dim=64, vocab_size=49152, max_context=2048, rms_norm_eps=1e-5, rope_theta=1e5, rope_scaling=None,
        tie_embeddings=True, qkv_bias=False, output_bias=False, mlp_bias=False, qk_norm=False,
        layer_windows=(None,) * 30, eos_token_ids=(2,), bos_token_id=1, torch_dtype="bfloat16",
    )  # fmt: skip
    generator = torch.Generator(device).manual_seed(0)

    def source(name: str) -> torch.Tensor:
        size = tensor_shapes(config)[name]
        weight = torch.randn(size, generator=generator, device=device) * 0.04
        return (weight + 1 if len(size) == 1 else weight).bfloat16()

    return TargetModel(config, source)


def check_kernels(device: torch.device) -> None:
    """Triton kernels on the device against the plain functions on CPU, in float32."""
    generator = torch.Generator().manual_seed(1)
    B, H, K, D, T = 5, 9, 3, 64, 200
    qkv = torch.randn(B, (H + 2 * K) * D, generator=generator)
    cache = tuple(torch.randn(B, K, T, D, generator=generator) for _ in range(2))
    table = decode_step.rope_table(1.0 / 100 ** (torch.arange(0, D, 2) / D), 1.0, T)
    there = qkv.to(device), tuple(c.to(device) for c in cache), tuple(t.to(device) for t in table)
    position = torch.tensor([150])
    decode_step.rope_store(qkv, None, table, position, cache, H, 1e-5)
    decode_step.rope_store(there[0], None, there[2], position.to(device), there[1], H, 1e-5)
    ours = decode_step.attend_cached(qkv, position, cache, H)
    theirs = decode_step.attend_cached(there[0], position.to(device), there[1], H).cpu()
    stored, mixed = (float((a - b).abs().max()) for a, b in ((qkv, there[0].cpu()), (ours, theirs)))
    print(f"rope_store {stored:.1e}, attention {mixed:.1e}")
    x = torch.randn(B, 576, generator=generator)
    norm = decode_step.add_rms_norm(x.to(device), None, torch.ones(576, device=device), 1e-5).cpu()
    print(f"norm {float((norm - decode_step.add_rms_norm(x, None, torch.ones(576), 1e-5)).abs().max()):.1e}")
    logits = torch.log(torch.tensor([0.6, 0.3, 0.08, 0.02], device=device)).expand(20000, 4).contiguous()
    ones = torch.ones(20000, device=device)
    drawn = decode_step.sample(logits, ones, ones * 0.1, torch.tensor([5, 1], device=device))
    print("sample shares", [round(s, 3) for s in (torch.bincount(drawn, minlength=4) / 20000).tolist()])


def check_attention(device: torch.device) -> None:
    """Sparse tiles against the dense mask, forward and backward."""
    generator = torch.Generator(device).manual_seed(2)
    R, A, b, L, H, K, D = 4, 64, 16, 512, 9, 3, 64
    anchors = torch.randint(1, L, (R, A), generator=generator, device=device).sort(1).values
    sizes = ((H, A * b), (K, L + A * b), (K, L + A * b))
    q, k, v = (torch.randn(R, h, n, D, generator=generator, device=device).bfloat16() for h, n in sizes)
    results = []
    for mask in (dense_mask(anchors, b, L), tile_mask(anchors, b, L)):
        parts = [t.clone().requires_grad_() for t in (q, k, v)]
        out = attend_blocks(*parts, mask) if isinstance(mask, torch.Tensor) else flex(*parts, mask)
        out.float().square().sum().backward()
        results.append([out.detach(), *(p.grad for p in parts)])
    errors = [float((a - b).float().norm() / a.float().norm()) for a, b in zip(*results, strict=True)]
    print("attention out, dq, dk, dv relative differences", [f"{e:.1e}" for e in errors])


def check_generator(target: TargetModel, num_rows: int, num_positions: int) -> None:
    opening = Opening(tuple(TURNS.prompt([3000, 500, 77])), ASSISTANT, 0.0)
    small = Generator(target, TURNS, 8, 96, 0.02)
    graphed = small.run([opening] * 8, 3).tokens
    small._graph, small._capture = None, lambda: 0  # type: ignore[method-assign]
    eager = small.run([opening] * 8, 3).tokens
    print("graph equals eager:", float((graphed == eager).float().mean()))
    generator = Generator(target, TURNS, num_rows, num_positions, 0.02)
    openings = [Opening(opening.ids, ASSISTANT, t) for t in (0.0, 0.7, 1.0, 1.0)] * (num_rows // 4)
    for attempt in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        written = generator.run(openings, attempt)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        print(f"generator: {written.num_sampled / seconds:.0f} tokens/s, {seconds:.2f} s a batch", flush=True)


def check_training(target: TargetModel, changes: dict[str, object], seconds: float) -> None:
    config = TrainConfig(
        target="random",
        data=DataConfig(),
        drafter=DrafterShape(block_size=16),
        run=msgspec.structs.replace(RunConfig(minutes=seconds / 60), **changes),
    )
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(100, 49152, (512, 512), generator=generator)
    kinds = torch.ones_like(tokens, dtype=torch.uint8)
    rows = Rows(tokens, kinds, torch.arange(512), torch.zeros(512, dtype=torch.uint8))
    manifest = CorpusManifest(
        target="random", recipe_hash="", temperatures=(0.0, 0.7, 1.0), row_tokens=512, vocab_size=49152
    )
    folder = Path(mkdtemp())
    started = time.perf_counter()
    trainer = Trainer(config, drafter_config(config, target, None), target, Corpus(manifest, rows, rows, 2), folder)
    trainer.train()
    print(f"training {changes}: {time.perf_counter() - started:.1f} s in all", flush=True)
    for line in (folder / "metrics.jsonl").read_text().splitlines()[-1:]:
        record = msgspec.json.decode(line)
        print({k: record[k] for k in ("step", "seconds", "loss", "block_tokens_per_s")}, flush=True)
    print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.parse_args()
    device = torch.device("cuda")
    check_kernels(device)
    check_attention(device)
    target = random_target(device)
    check_generator(target, 4096, 512)
    torch.cuda.empty_cache()
    check_training(target, {}, args.seconds)
    check_training(target, {"optimiser": "adamw"}, args.seconds / 2)


if __name__ == "__main__":
    main()
