"""AR of treegraft against `transformers` generate: same weights, dtype, prompts, threads and stop rule, alternating.

    python scripts/bench_transformers.py [--limit N] [--repeats N] [--max-tokens N] [--out results/transformers.json]

The model is the embedded default (pull it first). Both start each prompt with a cold prefill. The ratio that is printed
is treegraft's tokens/s over that of transformers.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from treegraft.bench.alternate import Arm, alternate
from treegraft.bench.record import Answer, BenchRecord, Phase, now, read_machine, read_packages, write_record
from treegraft.bench.report import report_text
from treegraft.bench.workloads import Prompt, in_units, load_prompts, prompt_set_hash
from treegraft.cli.bench_arms import engine_arm
from treegraft.engine.config import EngineConfig
from treegraft.engine.request import SamplingParams
from treegraft.models import registry
from treegraft.speculation.statistics import is_loop

MODEL = "smollm2-135m"


class FirstToken:
    """A streamer for `generate` that only notes when the first new token came; the first `put` is the prompt."""

    def __init__(self) -> None:
        self.num_puts = 0
        self.at = 0.0

    def put(self, _token_ids: torch.Tensor) -> None:
        self.num_puts += 1
        if self.num_puts == 2:
            self.at = time.perf_counter()

    def end(self) -> None:
        pass


def transformers_arm(max_tokens: int, dtype: str) -> Arm:
    """Greedy `generate` with its own KV cache, on the very GGUF file that treegraft reads. The prompt's ids are made by
    treegraft's tokenizer, so that both get the same ones; its time is counted in both arms."""
    files = registry.resolve(MODEL)
    tokenizer = registry.load_tokenizer(files)
    assert tokenizer is not None
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        files.path.parent, gguf_file=files.path.name, dtype=getattr(torch, dtype)
    )
    model.eval()
    stop_ids = sorted({*registry.load_config(files).eos_token_ids, *tokenizer.eos_token_ids})

    def ask(prompts: Sequence[Prompt]) -> list[Answer]:
        return [ask_one(prompt) for prompt in prompts]

    def ask_one(prompt: Prompt) -> Answer:
        started = time.perf_counter()
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}])
        ids = tokenizer.encode(text, add_special_tokens=False)
        inputs = torch.tensor([ids])
        first = FirstToken()
        with torch.inference_mode():
            output = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=stop_ids,
                pad_token_id=stop_ids[0],
                streamer=first,
            )
        seconds = time.perf_counter() - started
        new = output[0, len(ids) :].tolist()
        return Answer(
            prompt_id=prompt.id,
            prompt_tokens=len(ids),
            completion_tokens=len(new),
            cached_tokens=0,
            finish_reason="stop" if new[-1] in stop_ids else "length",
            accept_lengths=(1,) * (len(new) - 1),
            first_token_seconds=first.at - started,
            seconds=seconds,
            is_loop=is_loop(new),
            content_hash=hashlib.sha256(repr(new).encode()).hexdigest(),
        )

    config = {"method": "ar", "model": MODEL, "dtype": dtype, "threads": torch.get_num_threads()}
    return Arm("transformers", config, ask)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limit", type=int, help="prompts a category (all)")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, default=Path("results/transformers.json"))
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    started_at, machine = now(), read_machine()
    prompts = load_prompts("report", limit=args.limit)
    config = EngineConfig(model=MODEL, drafter=None, method="ar", dtype=args.dtype, max_context=2048, max_running=1)
    ours, close = engine_arm("treegraft ar", config, SamplingParams(max_tokens=args.max_tokens))
    arms = [transformers_arm(args.max_tokens, args.dtype), ours]
    warmup = in_units(load_prompts("tune", limit=1), 1)[0]
    samples = alternate(arms, in_units(prompts, 1), args.repeats, warmup, label="against transformers")
    close()
    record = BenchRecord(
        name="transformers",
        started_at=started_at,
        machine=machine,
        packages=read_packages(),
        workload={"split": "report", "prompts": len(prompts), "max_tokens": args.max_tokens, "temperature": 0.0},
        tuning=None,
        report=Phase(
            split="report",
            prompt_set_hash=prompt_set_hash(prompts),
            arms=tuple(arm.info for arm in arms),
            samples=tuple(samples),
        ),
    )
    write_record(record, args.out)
    print(report_text(record))
    print(f"record: {args.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
