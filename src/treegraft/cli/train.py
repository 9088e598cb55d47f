"""`treegraft train data|run|evaluate|export|adapt`: options, one call, print. Heavy imports happen inside."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treegraft.cli.engine_options import add_engine_options, engine_config
from treegraft.cli.output import add_json_option, note, print_json, print_text
from treegraft.errors import UsageError

if TYPE_CHECKING:
    from treegraft.training.loop import Trainer

CONFIG_HELP = "target, data, drafter and run; see docs/training.md"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "train",
        help="make, evaluate and export drafters",
        description="Make a drafter for a target from the target alone. data: the target writes conversations; run: "
        "train on them; evaluate: measure by real decoding; export: write a drafter folder; adapt: fine-tune one.",
    )
    stages = parser.add_subparsers(dest="stage", required=True, metavar="STAGE")
    data = stages.add_parser("data", help="let the target write a corpus")
    data.add_argument("config", type=Path, metavar="CONFIG.toml", help=CONFIG_HELP)
    data.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="new folder, or one to go on with")
    run_ = stages.add_parser("run", help="train on a corpus")
    _add_run_options(run_)
    adapt = stages.add_parser("adapt", help="fine-tune a drafter to the target of CONFIG (a fine-tuned model, say)")
    _add_run_options(adapt)
    adapt.add_argument("--drafter", type=Path, required=True, metavar="DIR", help="the drafter to start from")
    evaluate = stages.add_parser("evaluate", help="tau by real decoding, on the report prompts")
    evaluate.add_argument("--budgets", default="8,16,32,64,128", help="tree sizes (default 8,16,32,64,128)")
    evaluate.add_argument("--temperatures", default="0,0.7,1", help="default 0,0.7,1")
    evaluate.add_argument("--max-tokens", type=int, default=192, help="of each answer (default 192)")
    evaluate.add_argument(
        "--split", choices=("tune", "report"), default="report", help="which prompts (default report)"
    )
    evaluate.add_argument("--limit", type=int, metavar="N", help="prompts a category")
    evaluate.add_argument("--card", type=Path, metavar="DIR", help="write the figures into this drafter folder's card")
    add_engine_options(evaluate)
    export = stages.add_parser("export", help="write a run's drafter as a folder")
    export.add_argument("run_folder", type=Path, metavar="RUN", help="folder of `train run`")
    export.add_argument("output", type=Path, metavar="DIR", help="new folder for the drafter")
    export.add_argument(
        "--format", choices=("bf16", "stock", "int8"), default="bf16", help="stock: without the head; int8: as it ships"
    )
    for stage in (data, run_, adapt, evaluate, export):
        add_json_option(stage)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help=CONFIG_HELP)
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR", help="what `train data` wrote")
    parser.add_argument(
        "--run-dir", type=Path, required=True, metavar="DIR", dest="run_folder", help="new folder, or one to go on with"
    )
    parser.add_argument("--stop-after", type=float, metavar="S", help="stop (and save) after so many seconds")


def run(args: argparse.Namespace) -> int:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UsageError("training needs torch; install treegraft[train]") from error
    from treegraft.training.parallel import is_first_process, leave

    stages = {"data": _data, "run": _run, "adapt": _run, "evaluate": _evaluate, "export": _export}
    try:
        document, text = stages[args.stage](args)
        if is_first_process():
            print_json(document) if args.json else print_text(text)
    finally:
        leave()
    return 0


def _data(args: argparse.Namespace) -> tuple[Any, str]:
    from treegraft.bench.workloads import load_prompts
    from treegraft.logs import progress
    from treegraft.training.build import load_target
    from treegraft.training.config import read_config
    from treegraft.training.corpus.make import make_corpus
    from treegraft.training.corpus.shards import CorpusManifest

    config = read_config(args.config)
    target, tokenizer = load_target(config)
    if tokenizer is None:
        raise UsageError(f"{config.target} has no tokenizer; a corpus needs one with a chat template")
    held_out = [prompt.text for split in ("tune", "report") for prompt in load_prompts(split)]
    bar = progress(total=None, label="writing", unit="tok")

    def report(manifest: CorpusManifest) -> None:
        bar.update(manifest.shards[-1].num_written)

    manifest = make_corpus(config, args.corpus, target, tokenizer, held_out, report)
    bar.close()
    written = sum(shard.num_written for shard in manifest.shards)
    reply = sum(shard.num_reply_tokens for shard in manifest.shards)
    rate = written / manifest.seconds if manifest.seconds else 0.0
    document = {
        "corpus": str(args.corpus),
        "shards": len(manifest.shards),
        "rows": sum(shard.num_rows for shard in manifest.shards),
        "written_tokens": written,
        "reply_tokens": reply,
        "seconds": manifest.seconds,
        "tokens_per_s": rate,
    }
    text = f"{args.corpus}: {written} tokens in {manifest.seconds:.1f} s ({rate:.0f} tokens/s), {reply} to learn from"
    return document, text


def _run(args: argparse.Namespace) -> tuple[Any, str]:
    import msgspec

    from treegraft.errors import TrainingError
    from treegraft.training.build import drafter_config, load_target
    from treegraft.training.card import write_card
    from treegraft.training.config import read_config
    from treegraft.training.corpus.conversation import read_turns
    from treegraft.training.export import DRAFTER, write_config
    from treegraft.training.loop import METRICS, Trainer, read_corpus
    from treegraft.training.parallel import join
    from treegraft.training.report import REPORT, write_report

    config = read_config(args.config)
    if args.stage == "adapt":
        changed = msgspec.structs.replace(config.drafter, initial=str(args.drafter))
        config = msgspec.structs.replace(config, drafter=changed)
    target, tokenizer = load_target(config)
    if tokenizer is None:
        raise UsageError(f"{config.target} has no tokenizer; training needs one with a chat template")
    corpus = read_corpus(args.corpus, target, read_turns(tokenizer).end_token)
    if corpus.manifest.target != config.target:
        note(f"the corpus was written by {corpus.manifest.target}; the target is {config.target}")
    drafter = drafter_config(config, target, tokenizer)
    try:
        args.run_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"run folder {args.run_folder} cannot be made: {error.strerror}") from error
    group = join()
    trainer = Trainer(config, drafter, target, corpus, args.run_folder, group)
    if group.is_first:
        write_config(drafter, args.run_folder)
    try:
        is_done = trainer.train(args.stop_after)
        if group.is_first:
            write_card(trainer.card(), args.run_folder / DRAFTER)
        taus = trainer.validate() if group.is_first else {}
    finally:
        if group.is_first and (args.run_folder / METRICS).is_file():
            configuration = args.config.read_text(encoding="utf-8")
            write_report(
                args.run_folder / METRICS, args.run_folder / REPORT, f"Drafter for {config.target}", configuration
            )
    return _run_result(args, trainer, is_done, taus)


def _run_result(args: argparse.Namespace, trainer: "Trainer", is_done: bool, taus: dict[str, float]) -> tuple[Any, str]:
    steps = trainer.optimiser.num_steps
    document = {
        "run": str(args.run_folder),
        "is_done": is_done,
        "steps": steps,
        "seconds": trainer.seconds,
        "tau": taus,
    }
    figures = ", ".join(f"{name} {value:.3f}" for name, value in taus.items())
    state = "done" if is_done else "stopped, run again to go on"
    return document, f"{args.run_folder}: {state}; {steps} steps in {trainer.seconds:.0f} s; held-out tau {figures}"


def _evaluate(args: argparse.Namespace) -> tuple[Any, str]:
    import msgspec

    from treegraft.bench.workloads import load_prompts, prompt_set_hash
    from treegraft.training.card import read_card, write_card
    from treegraft.training.evaluate import EvalPrompt, evaluate

    card = read_card(args.card) if args.card is not None else None
    asked = load_prompts(args.split, limit=args.limit)
    prompts = [EvalPrompt(p.id, p.category, p.text) for p in asked]
    result = evaluate(
        engine_config(args),
        prompts,
        _numbers(args.budgets, int, "--budgets"),
        _numbers(args.temperatures, float, "--temperatures"),
        args.max_tokens,
        note,
    )
    if card is not None:
        measured = msgspec.structs.replace(card, measured=result.measured, prompts_hash=prompt_set_hash(asked))
        write_card(measured, args.card)
    lines = [f"{'T':>4} {'method':>8} {'category':>11} {'tau':>6} {'with loops':>10} {'prompts':>7} {'loops':>5}"]
    lines += [
        f"{m.temperature:4g} {m.method:>8} {m.category:>11} {m.tau:6.3f} {m.tau_with_loops:10.3f} "
        f"{m.num_prompts:7} {m.num_loops:5}"
        for m in result.measured
    ]
    return result, "\n".join(lines)


def _numbers(text: str, kind: Any, option: str) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}; expected numbers with commas between them") from error


def _export(args: argparse.Namespace) -> tuple[Any, str]:
    from treegraft.training.export import export

    num_bytes = export(args.run_folder, args.output, args.format)
    document = {"output": str(args.output), "format": args.format, "num_bytes": num_bytes}
    return document, f"{args.output}: {args.format}, {num_bytes / 1e6:.2f} MB"
