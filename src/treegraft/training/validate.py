"""Acceptance on held-out rows while training: exactly what decoding at T = 0 would accept, without decoding.

A greedy reply is what the target says, so drafts are checked against the reply itself. From the reply's first token on
the walk drafts, counts the hits, and goes on after the bonus token, as decoding does. (Drafting at random places
instead flatters: places where decoding drafts come after a miss.)

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
LOGIT_ROWS = 4096


@dataclass(frozen=True)
class Reply:
    """A greedy first reply: row's number and tokens start .. end - 1 of it."""

    row: int
    start: int
    end: int


@dataclass(frozen=True)
class Drafts:
    """What the drafter says at every place of the replies. run, run_conditional: int64 [places], hits of the chain in a
    row, by marginals and by the head; where: (row, place) -> index. For trees, by index: log_probs, ids [D, K] and
    tables [D-1, K, K]."""

    where: dict[tuple[int, int], int]
    run: NDArray[np.int64]
    run_conditional: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    ids: NDArray[np.int64]
    tables: NDArray[np.float32] | None


def greedy_replies(rows: Rows, greedy_kind: int, end_token: int, max_rows: int) -> list[Reply]:
    """Replies of at least 32 tokens that were sampled at T = 0, end within their row or with it, and never loop."""
    replies = []
    for row, (kinds, tokens) in enumerate(zip(rows.kinds.tolist(), rows.tokens.tolist(), strict=True)):
        if greedy_kind not in kinds:
            continue
        start = end = kinds.index(greedy_kind)
        while end < len(kinds) and kinds[end] == greedy_kind:
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
) -> Drafts:
    """Draft at every place of the replies. num_candidates 0: chains only."""
    where: dict[tuple[int, int], int] = {}
    parts: list[tuple[Tensor, ...]] = []
    device, b = target.device, network.config.block_size
    with torch.no_grad():
        for reply in replies:
            tokens = rows.tokens[reply.row].long().to(device)[None]
            tapped = reader.read(tokens)
            for first in range(reply.start, reply.end - 1, ANCHORS):
                places = torch.arange(first, min(first + ANCHORS, reply.end - 1), device=device)
                mask = dense_mask(places[None], b, tokens.shape[1])
                hidden = network(tapped, tokens[:, places], places[None], target, mask)[0]
                truth = _following(tokens[0], places, b - 1)
                for place in places.tolist():
                    where[reply.row, place] = len(where)
                parts.append(_drafts(network, target, hidden, truth, num_candidates))
    columns = [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
    run, run_conditional, log_probs, ids = columns[:4]
    return Drafts(where, run, run_conditional, log_probs, ids, columns[4] if len(columns) > 4 else None)


def _following(tokens: Tensor, places: Tensor, depth: int) -> Tensor:
    """int64 [A, D]: the tokens after each place, -1 beyond the row."""
    at = places[:, None] + torch.arange(1, depth + 1, device=places.device)
    return torch.where(at < len(tokens), tokens[at.clamp(max=len(tokens) - 1)], -1)


def _drafts(
    network: DrafterNetwork, target: TargetModel, hidden: Tensor, truth: Tensor, num_candidates: int
) -> tuple[Tensor, ...]:
    """(run, run by the head, log_probs, ids[, tables]) of blocks hidden [A, b, E]."""
    A, D = truth.shape
    rows = hidden[:, 1:].flatten(0, 1)
    K = max(num_candidates, 1)
    found = [candidates(target.logits(part), K) for part in torch.split(rows, LOGIT_ROWS)]
    log_probs = torch.cat([f[0] for f in found]).view(A, D, K)
    ids = torch.cat([f[1] for f in found]).view(A, D, K)
    run = (ids[..., 0] == truth).long().cumprod(1).sum(1)
    if not network.has_head:
        return run, run, log_probs, ids
    chain = [ids[:, 0, 0]]
    for depth in range(2, D + 1):
        corrected = network.conditional(hidden[:, depth], target.embed(chain[-1]).to(hidden.dtype))
        chain.append(target.logits(corrected).argmax(-1))
    run_conditional = (torch.stack(chain, 1) == truth).long().cumprod(1).sum(1)
    if num_candidates == 0:
        return run, run_conditional, log_probs, ids
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
    return run, run_conditional, log_probs, ids, head.pair_log_probs(hidden[:, 1:], ids, log_probs).tables


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
    runs = drafts.run_conditional if by_head else drafts.run
    lengths = []
    for reply in replies:
        committed = {p: int(runs[drafts.where[reply.row, p]]) + 1 for p in range(reply.start, reply.end - 1)}
        lengths.append(walk(reply, committed))
    return mean_tau(lengths)


def tree_tau(drafts: Drafts, rows: Rows, replies: list[Reply], budget: int, by_head: bool) -> float:
    """tau of trees of `budget` nodes on whole replies; trees are built only where the walk comes by."""
    return mean_tau([_tree_walk(drafts, rows, reply, budget, by_head) for reply in replies])


def _tree_walk(drafts: Drafts, rows: Rows, reply: Reply, budget: int, by_head: bool) -> list[int]:
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
