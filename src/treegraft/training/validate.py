"""Acceptance on held-out rows while training: what decoding would accept, without decoding.

A reply is what the target says, so drafts are checked against the reply itself. From the reply's first token on the
walk drafts, counts the hits, and goes on after the bonus token, as decoding does. (Drafting at random places instead
flatters: places where decoding drafts come after a miss.)

At T > 0 the drafts lean on the noise that chose the reply. It was not kept, so it is drawn anew given what it chose
(Maddison, Tarlow and Minka, "A* sampling", NeurIPS 2014): with scores l (log-probabilities) and chosen token x, the
maximum M of l + g is a standard Gumbel; every other sum is a Gumbel cut off at M:

    l_i + g_i = -log(exp(-M) + exp(-(l_i + g'_i)))    g' fresh

Shape suffixes: R rows, A anchors, D = b - 1 depths, K candidates, V vocabulary, E hidden.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treegraft.kernels.candidates import candidates
from treegraft.models.head import ConditionalHead
from treegraft.models.target import TargetModel
from treegraft.speculation.accept import accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.scorer import PairwiseScorer
from treegraft.training.block_attention import dense_mask
from treegraft.training.corpus.shards import Rows
from treegraft.training.features import TapReader
from treegraft.training.network import DrafterNetwork

ANCHORS = 64


@dataclass(frozen=True)
class Reply:
    """A first reply: row's number and tokens start .. end - 1 of it."""

    row: int
    start: int
    end: int


@dataclass(frozen=True)
class Drafts:
    """What the drafter says at every place of the replies. run, run_conditional: int64 [places], hits of the chain in a
    row, by marginals and by the head; where: (row, place) -> index. For trees, by index: log_probs, ids [D, K] and
    tables [D-1, K, K]; truth int64 [D], the row's own tokens (-1 beyond its end)."""

    where: dict[tuple[int, int], int]
    run: NDArray[np.int64]
    run_conditional: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    ids: NDArray[np.int64]
    truth: NDArray[np.int64]
    tables: NDArray[np.float32] | None


def whole_replies(rows: Rows, kind: int, end_token: int, max_rows: int) -> list[Reply]:
    """First replies of this kind (1 + index of its temperature) of at least 32 tokens, that end within their row or
    with it and never loop."""
    replies = []
    for row, (kinds, tokens) in enumerate(zip(rows.kinds.tolist(), rows.tokens.tolist(), strict=True)):
        if kind not in kinds:
            continue
        start = end = kinds.index(kind)
        while end < len(kinds) and kinds[end] == kind:
            end += 1
        is_whole = end == len(kinds) or tokens[end - 1] == end_token
        if is_whole and end - start >= 32:
            replies.append(Reply(row, start, end))
        if len(replies) == max_rows:
            break
    return replies


def draft_everywhere(
    network: DrafterNetwork,
    target: TargetModel,
    reader: TapReader,
    rows: Rows,
    replies: list[Reply],
    num_candidates: int,
    temperature: float = 0.0,
) -> Drafts:
    """Draft at every place of the replies, which were sampled at this temperature. num_candidates 0: chains only."""
    where: dict[tuple[int, int], int] = {}
    parts: list[tuple[Tensor, ...]] = []
    device, b = target.device, network.config.block_size
    generator = torch.Generator(device).manual_seed(0)
    # Every chunk has a shape of its own: compiled layers would be compiled anew for each.
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        for reply in replies:
            tokens = rows.tokens[reply.row].long().to(device)[None]
            tapped, final = reader.read_all(tokens)
            for first in range(reply.start, reply.end - 1, ANCHORS):
                places = torch.arange(first, min(first + ANCHORS, reply.end - 1), device=device)
                mask = dense_mask(places[None], b, tokens.shape[1])
                hidden = network(tapped, tokens[:, places], places[None], target, mask)[0]
                truth = _following(tokens[0], places, b - 1)
                for place in places.tolist():
                    where[reply.row, place] = len(where)
                noise = None
                if temperature > 0:
                    says = torch.arange(first, min(first + ANCHORS + b, tokens.shape[1]) - 1, device=device)
                    scores = target.logits(final[0, says]) / temperature
                    noise = _noise_given(scores, tokens[0, says + 1], generator)
                parts.append(_drafts(network, target, hidden, truth, num_candidates, temperature, noise))
    columns = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
    run, run_conditional, log_probs, ids, truths = columns[:5]
    return Drafts(where, run, run_conditional, log_probs, ids, truths, columns[5] if len(columns) > 5 else None)


def _noise_given(scores: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Gumbel noise float32 [N, V] for which scores + noise is largest at chosen int64 [N]."""
    log_probs = scores.float().log_softmax(-1)
    fresh = _gumbel(log_probs.shape, generator)
    most = _gumbel((len(chosen), 1), generator)
    total = torch.minimum(-torch.logaddexp(-most, -(log_probs + fresh)), most)
    total.scatter_(1, chosen[:, None], most)
    return total - log_probs


def _gumbel(size: tuple[int, ...] | torch.Size, generator: torch.Generator) -> Tensor:
    exponential = torch.empty(size, device=generator.device).exponential_(generator=generator)
    return -exponential.clamp(min=1e-30).log()


def _following(tokens: Tensor, places: Tensor, depth: int) -> Tensor:
    """int64 [A, D]: the tokens after each place, -1 beyond the row."""
    at = places[:, None] + torch.arange(1, depth + 1, device=places.device)
    return torch.where(at < len(tokens), tokens[at.clamp(max=len(tokens) - 1)], -1)


def _drafts(
    network: DrafterNetwork,
    target: TargetModel,
    hidden: Tensor,
    truth: Tensor,
    num_candidates: int,
    temperature: float,
    noise: Tensor | None,
) -> tuple[Tensor, ...]:
    """(run, run by the head, log_probs, ids, truth[, tables]) of blocks hidden [A, b, E] at consecutive places; noise
    [>= N, V]: of the tokens after the first place and after it, as many as the row has."""
    A, D = truth.shape
    K = max(num_candidates, 1)
    parts = [candidates(_scores(target, hidden[:, d], temperature), K, _at_depth(noise, d, A)) for d in range(1, D + 1)]
    log_probs, ids = (torch.stack(column, 1) for column in zip(*parts, strict=True))
    run = (ids[..., 0] == truth).long().cumprod(1).sum(1)
    if not network.has_head:
        return run, run, log_probs, ids, truth
    chain = [ids[:, 0, 0]]
    for depth in range(2, D + 1):
        corrected = network.conditional(hidden[:, depth], target.embed(chain[-1]).to(hidden.dtype))
        scores, drawn = _scores(target, corrected, temperature), _at_depth(noise, depth, A)
        chain.append((scores if drawn is None else scores + drawn).argmax(-1))
    run_conditional = (torch.stack(chain, 1) == truth).long().cumprod(1).sum(1)
    if num_candidates == 0:
        return run, run_conditional, log_probs, ids, truth
    config = network.config.head
    assert config is not None
    weights = dict(
        zip(
            ("head.hidden.weight", "head.parent.weight", "head.output.weight"),
            (network.head_hidden, network.head_parent, network.head_output),
            strict=True,
        )
    )
    head = ConditionalHead(config, weights.__getitem__, target.embed, target.head.weight.__getitem__)
    at_ids = None
    if noise is not None:
        at_ids = torch.stack([_given(_at_depth(noise, d, A)).gather(1, ids[:, d - 1]) for d in range(1, D + 1)], 1)
    heat = torch.full((A,), temperature, device=hidden.device)
    pairs = head.pair_log_probs(hidden[:, 1:], ids, log_probs, heat, at_ids)
    return run, run_conditional, log_probs, ids, truth, pairs.tables


def _scores(target: TargetModel, hidden: Tensor, temperature: float) -> Tensor:
    return target.logits(hidden) / (temperature if temperature > 0 else 1.0)


def _at_depth(noise: Tensor | None, depth: int, num_places: int) -> Tensor | None:
    """Noise [A, V] of the tokens `depth` after consecutive places; beyond the row none (zeros)."""
    if noise is None:
        return None
    rows = noise[depth - 1 : depth - 1 + num_places]
    return torch.nn.functional.pad(rows, (0, 0, 0, num_places - len(rows)))


def _given(noise: Tensor | None) -> Tensor:
    assert noise is not None
    return noise


def walk(reply: Reply, committed: "dict[int, int]") -> list[int]:
    """Tokens that each pass commits, from the first reply token to the end. committed: place -> hits + 1."""
    place, lengths = reply.start, []
    while place + 1 < reply.end:
        lengths.append(min(committed[place], reply.end - 1 - place))
        place += lengths[-1]
    return lengths


def mean_tau(lengths_by_reply: list[list[int]]) -> float:
    """Mean over replies of their mean acceptance length."""
    means = [sum(lengths) / len(lengths) for lengths in lengths_by_reply if lengths]
    return sum(means) / len(means) if means else float("nan")


def chain_tau(drafts: Drafts, replies: list[Reply], by_head: bool) -> float:
    """tau of the chain on whole replies."""
    return mean_tau([chain_lengths(drafts, reply, by_head) for reply in replies])


def chain_lengths(drafts: Drafts, reply: Reply, by_head: bool) -> list[int]:
    """Tokens that each pass commits of one reply."""
    runs = drafts.run_conditional if by_head else drafts.run
    return walk(reply, {p: int(runs[drafts.where[reply.row, p]]) + 1 for p in range(reply.start, reply.end - 1)})


def tree_tau(drafts: Drafts, rows: Rows, replies: list[Reply], budget: int, by_head: bool) -> float:
    """tau of trees of `budget` nodes on whole replies; trees are built only where the walk comes by."""
    return mean_tau([tree_walk(drafts, rows, reply, budget, by_head) for reply in replies])


def tree_walk(drafts: Drafts, rows: Rows, reply: Reply, budget: int, by_head: bool) -> list[int]:
    """Tokens that each pass commits of one reply, with trees of `budget` nodes."""
    tokens = rows.tokens[reply.row].tolist()
    place, lengths = reply.start, []
    while place + 1 < reply.end:
        index = drafts.where[reply.row, place]
        log_probs, ids = drafts.log_probs[index], drafts.ids[index]
        scorer = None
        if by_head:
            assert drafts.tables is not None
            scorer = PairwiseScorer(log_probs[0], drafts.tables[index], ids)
        tree = build_tree(log_probs, ids, budget, scorer)
        # What the target says at a node matters only on the true path: elsewhere -1, which no node has.
        says = np.full(len(tree.token_ids) + 1, -1, np.int64)
        says[0] = tokens[place + 1]
        on_path = [-1]
        for node, (parent, token, depth) in enumerate(zip(tree.parents, tree.token_ids, tree.depths, strict=True)):
            if parent in on_path and place + depth < reply.end and token == tokens[place + depth]:
                on_path.append(node)
                says[node + 1] = tokens[place + depth + 1] if place + depth + 1 < reply.end else -1
        committed = len(accept(tree, says).path) + 1
        lengths.append(min(committed, reply.end - 1 - place))
        place += lengths[-1]
    return lengths
