"""`train evaluate`: what a drafter is worth in real decoding by the engine. Knows no training.

tau of each method and temperature, per category, with and without texts that end in a loop; hit rates by depth and of
siblings, and how well the tree's own probabilities are calibrated, on its spine and below siblings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from treegraft.engine.config import EngineConfig
from treegraft.engine.engine import Engine
from treegraft.engine.request import Request, SamplingParams
from treegraft.engine.round import RoundTrace
from treegraft.errors import UsageError
from treegraft.speculation.statistics import is_loop
from treegraft.training.card import Measured


@dataclass(frozen=True)
class EvalPrompt:
    id: str
    category: str
    text: str


class NodeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one method: hits_by_depth[d - 1]: share of rounds, among those that reached depth d, that accepted there;
    sibling_share[d - 1]: share of those hits that were no rank-0 child. calibration: for nodes on the spine and below
    siblings, in bins of the tree's probability, (mean probability, share accepted, nodes)."""

    method: str
    temperature: float
    hits_by_depth: tuple[float, ...]
    sibling_share: tuple[float, ...]
    calibration_spine: tuple[tuple[float, float, int], ...]
    calibration_siblings: tuple[tuple[float, float, int], ...]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    measured: tuple[Measured, ...]
    nodes: tuple[NodeStatistics, ...]


@dataclass
class _Nodes:
    """Counts over rounds: reached and hit by depth, hits of siblings, and (probability, accepted) of nodes."""

    reached: dict[int, int] = field(default_factory=dict)
    hits: dict[int, int] = field(default_factory=dict)
    siblings: dict[int, int] = field(default_factory=dict)
    spine: list[tuple[float, bool]] = field(default_factory=list)
    below: list[tuple[float, bool]] = field(default_factory=list)

    def add(self, trace: RoundTrace) -> None:
        tree, path = trace.tree, set(trace.acceptance.path.tolist())
        first_child: dict[int, int] = {}
        is_spine: list[bool] = []
        for node, parent in enumerate(tree.parents.tolist()):
            is_first = first_child.setdefault(parent, node) == node
            is_spine.append(is_first and (parent < 0 or is_spine[parent]))
            above = float(tree.log_probs[parent]) if parent >= 0 else 0.0
            # A child's own probability is only put to the test when its parent was accepted.
            if parent < 0 or parent in path:
                probability = float(np.exp(float(tree.log_probs[node]) - above))
                on_spine = parent < 0 or is_spine[parent]
                (self.spine if on_spine else self.below).append((probability, node in path))
            if node in path:
                depth = int(tree.depths[node])
                self.hits[depth] = self.hits.get(depth, 0) + 1
                self.siblings[depth] = self.siblings.get(depth, 0) + (not is_first)
        for depth in {int(d) for d in tree.depths}:
            self.reached[depth] = self.reached.get(depth, 0) + (len(path) >= depth - 1)

    def summary(self, method: str, temperature: float) -> NodeStatistics:
        depths = range(1, max(self.reached, default=0) + 1)
        return NodeStatistics(
            method=method,
            temperature=temperature,
            hits_by_depth=tuple(self.hits.get(d, 0) / max(self.reached.get(d, 0), 1) for d in depths),
            sibling_share=tuple(self.siblings.get(d, 0) / max(self.hits.get(d, 0), 1) for d in depths),
            calibration_spine=_bins(self.spine),
            calibration_siblings=_bins(self.below),
        )


def _bins(pairs: list[tuple[float, bool]], num_bins: int = 10) -> tuple[tuple[float, float, int], ...]:
    if not pairs:
        return ()
    values = np.array(pairs, np.float64)
    place = np.minimum((values[:, 0] * num_bins).astype(int), num_bins - 1)
    found = []
    for index in np.unique(place):
        chosen = values[place == index]
        found.append((float(chosen[:, 0].mean()), float(chosen[:, 1].mean()), len(chosen)))
    return tuple(found)


def evaluate(
    config: EngineConfig,
    prompts: Sequence[EvalPrompt],
    budgets: Sequence[int],
    temperatures: Sequence[float],
    max_tokens: int,
    report: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Decode every prompt with the chain and each tree at each temperature (seed: the prompt's number).

    config: everything but method and budget. Prompts are decoded together, config.max_running at a time: tau does not
    depend on that. Raises UsageError for a model without a chat template; what the engine raises otherwise.
    """
    measured: list[Measured] = []
    nodes: list[NodeStatistics] = []
    for budget in (None, *budgets):
        method = "chain" if budget is None else f"tree{budget}"
        engine = Engine(replace(config, method="dflash" if budget is None else "ddtree", budget=budget))
        try:
            for temperature in temperatures:
                counts = _Nodes()
                engine.trace = counts.add
                runs = _decode(engine, prompts, temperature, max_tokens)
                measured += _summaries(method, temperature, prompts, runs)
                nodes.append(counts.summary(method, temperature))
                report(f"T {temperature:g} {method}: tau {measured[-1].tau:.3f}")
        finally:
            engine.close()
    return Evaluation(measured=tuple(measured), nodes=tuple(nodes))


def _decode(
    engine: Engine, prompts: Sequence[EvalPrompt], temperature: float, max_tokens: int
) -> list[tuple[list[int], list[int]]]:
    """(token ids, accept lengths) of each prompt."""
    tokenizer = engine.tokenizer
    if tokenizer is None or not tokenizer.has_chat_template:
        raise UsageError("the model has no tokenizer with a chat template; prompts cannot be asked")
    runs: dict[str, tuple[list[int], list[int]]] = {prompt.id: ([], []) for prompt in prompts}
    for seed, prompt in enumerate(prompts):
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}])
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        engine.add(Request(id=prompt.id, prompt_token_ids=ids, params=params))
    while engine.has_work():
        for output in engine.step():
            tokens, lengths = runs[output.request_id]
            tokens += output.token_ids
            lengths += [output.accept_length] if output.accept_length else []
    return list(runs.values())


def _summaries(
    method: str, temperature: float, prompts: Sequence[EvalPrompt], runs: Sequence[tuple[list[int], list[int]]]
) -> list[Measured]:
    """By category, all of them last: mean over prompts of tokens per pass."""
    taus = [
        (p.category, sum(lengths) / len(lengths), is_loop(tokens))
        for p, (tokens, lengths) in _with_rounds(prompts, runs)
    ]
    found = []
    for category in (*sorted({c for c, _, _ in taus}), "all"):
        own = [(tau, loops) for c, tau, loops in taus if category in (c, "all")]
        straight = [tau for tau, loops in own if not loops]
        found.append(
            Measured(
                method=method,
                temperature=temperature,
                category=category,
                tau=float(np.mean(straight)) if straight else 0.0,
                num_prompts=len(straight),
                num_loops=len(own) - len(straight),
                tau_with_loops=float(np.mean([tau for tau, _ in own])) if own else 0.0,
            )
        )
    return found


def _with_rounds(
    prompts: Sequence[EvalPrompt], runs: Sequence[tuple[list[int], list[int]]]
) -> list[tuple[EvalPrompt, tuple[list[int], list[int]]]]:
    """Without the prompts whose answer needed no round (one token)."""
    return [(prompt, run) for prompt, run in zip(prompts, runs, strict=True) if run[1]]
