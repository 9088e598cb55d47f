"""`treegraft generate PROMPT`: one completion by an engine in this process, streamed. Knows no server."""

import argparse
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from treegraft.cli.engine_options import (
    add_engine_options,
    add_method_options,
    add_sampling_options,
    engine_config,
    require_engine,
    sampling_params,
)
from treegraft.cli.output import add_json_option, note, print_json, print_text
from treegraft.errors import ModelError, UsageError

if TYPE_CHECKING:
    from treegraft.engine.engine import Engine
    from treegraft.engine.request import StepOutput
    from treegraft.engine.round import RoundTrace


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "generate",
        help="complete one prompt in this process",
        description="Complete one prompt. The answer is streamed to stdout, one line of figures goes to stderr. The "
        "same seed gives the same text with every method and budget.",
    )
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt; - reads it from standard input")
    parser.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument("--raw", action="store_true", help="complete the prompt as it is, without the chat template")
    parser.add_argument("--trace", action="store_true", help="print every round's draft tree, the accepted path marked")
    add_json_option(parser)
    add_method_options(parser)
    add_sampling_options(parser)
    add_engine_options(parser)


def run(args: argparse.Namespace) -> int:
    require_engine()
    prompt = _read_prompt(args.prompt)
    params = sampling_params(args)
    config = engine_config(args)

    from treegraft.engine.engine import Engine
    from treegraft.engine.request import Request

    engine = Engine(config)
    try:
        prompt_ids = _prompt_ids(engine, prompt, args)
        traces: list[RoundTrace] = []
        if args.trace:
            engine.trace = traces.append
        started = time.perf_counter()
        engine.add(Request(id="generate", prompt_token_ids=tuple(prompt_ids), params=params))
        outputs = _drain(engine, is_streaming=not (args.json or args.trace))
        document = _document(engine, outputs, time.perf_counter() - started)
        if args.json:
            if args.trace:
                document["rounds_trace"] = [_round_document(trace) for trace in traces]
            print_json(document)
        else:
            if args.trace:
                _print_traces(engine, traces)
                print_text(document["text"])
            note(_summary(document))
    finally:
        engine.close()
    return 0


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not valid text: {error}; expected UTF-8") from error


def _prompt_ids(engine: "Engine", prompt: str, args: argparse.Namespace) -> list[int]:
    """Through the chat template where the model has one, unless --raw."""
    tokenizer = engine.tokenizer
    if tokenizer is None:
        raise ModelError(f"{args.model} has no tokenizer; it serves token ids only (Python API or /v1/completions)")
    if args.raw or not tokenizer.has_chat_template:
        if args.system is not None:
            why = "--raw is given" if args.raw else f"{args.model} has no chat template"
            raise UsageError(f"--system needs a chat template, and {why}")
        return tokenizer.encode(prompt)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if args.system is not None:
        messages.insert(0, {"role": "system", "content": args.system})
    return tokenizer.encode(tokenizer.apply_chat_template(messages), add_special_tokens=False)


def _drain(engine: "Engine", is_streaming: bool) -> "list[StepOutput]":
    """Step until the one request is done; its text is printed as it comes."""
    outputs: list[StepOutput] = []
    while engine.has_work():
        for output in engine.step():
            outputs.append(output)
            if is_streaming and output.text:
                print_text(output.text, end="")
    if is_streaming:
        print_text("")
    return outputs


def _document(engine: "Engine", outputs: "list[StepOutput]", seconds: float) -> dict[str, Any]:
    last = outputs[-1]
    if last.error is not None:
        raise ModelError(last.error)
    lengths = [output.accept_length for output in outputs if output.accept_length > 0]
    token_ids = [token for output in outputs for token in output.token_ids]
    return {
        "text": "".join(output.text for output in outputs),
        "token_ids": token_ids,
        "finish_reason": last.finish_reason,
        "prompt_tokens": last.num_prompt_tokens,
        "accept_lengths": lengths,
        "rounds": len(lengths),
        "tau": sum(lengths) / len(lengths) if lengths else None,
        "seconds": seconds,
        "tokens_per_second": len(token_ids) / seconds,
        "seed": last.seed,
        "engine": engine.info,
    }


def _summary(document: dict[str, Any]) -> str:
    info = document["engine"]
    method = info.method if info.budget is None else f"{info.method} {info.budget}"
    tau = document["tau"] if document["tau"] is not None else math.nan
    return (
        f"[{method}: {len(document['token_ids'])} tokens in {document['rounds']} rounds, tau {tau:.2f}, "
        f"{document['tokens_per_second']:.1f} tokens/s with prefill, finish {document['finish_reason']}, "
        f"seed {document['seed']}]"
    )


def _print_traces(engine: "Engine", traces: "list[RoundTrace]") -> None:
    from treegraft.cli.trace_text import tree_lines

    tokenizer = engine.tokenizer
    assert tokenizer is not None

    def text_of(token: int) -> str:
        return tokenizer.decode([token], skip_special=False)

    for number, trace in enumerate(traces, 1):
        print_text(f"round {number}: {len(trace.tree)} nodes, {len(trace.acceptance.path) + 1} tokens committed")
        print_text("\n".join(tree_lines(trace.root_token, trace.tree, trace.acceptance, text_of)))


def _round_document(trace: "RoundTrace") -> dict[str, Any]:
    tree = trace.tree
    return {
        "root_token": trace.root_token,
        "token_ids": tree.token_ids.tolist(),
        "parents": tree.parents.tolist(),
        "log_probs": [float(value) for value in tree.log_probs],
        "accepted": trace.acceptance.path.tolist(),
        "bonus": int(trace.acceptance.bonus),
    }
