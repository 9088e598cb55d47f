"""Whole rounds on a tiny vocabulary: any drafter, chain or tree, with or without known noise, writes the text that
plain decoding writes with the same seed, and over many seeds that text is distributed as the target says."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from treegraft.speculation.accept import accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.candidates import candidates
from treegraft.speculation.noise import gumbel
from treegraft.speculation.sampling import choose, filtered_scores

VOCAB = 5
PROMPT = (0, 3)
Filters = tuple[float, int, float, float]  # temperature, top_k, top_p, min_p
FILTERS: tuple[Filters, ...] = (
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (0.7, 3, 1.0, 0.0),
    (1.4, 0, 0.8, 0.0),
    (1.0, 4, 0.9, 0.2),
)


@dataclass(frozen=True)
class TableModel:
    """Logits by the last two tokens: [V, V, V]."""

    table: NDArray[np.float32]

    @classmethod
    def random(cls, seed: int) -> "TableModel":
        return cls((np.random.default_rng(seed).normal(size=(VOCAB, VOCAB, VOCAB)) * 1.5).astype(np.float32))

    def logits(self, text: tuple[int, ...]) -> NDArray[np.float32]:
        return self.table[text[-2], text[-1]]


@dataclass(frozen=True)
class Drawing:
    """How a request samples: the same for every method."""

    filters: Filters
    seed: int

    def noise(self, position: int) -> NDArray[np.float64] | None:
        return gumbel(self.seed, 0, position, VOCAB) if self.filters[0] > 0 else None

    def token(self, target: TableModel, text: tuple[int, ...]) -> int:
        return choose(filtered_scores(target.logits(text), *self.filters), self.noise(len(text)))


@dataclass(frozen=True)
class Method:
    budget: int
    depth: int
    is_chain: bool
    knows_noise: bool


def write_plainly(target: TableModel, drawing: Drawing, length: int) -> tuple[int, ...]:
    text = PROMPT
    while len(text) < length:
        text = (*text, drawing.token(target, text))
    return text


def write_speculatively(
    target: TableModel, drafter: TableModel, drawing: Drawing, method: Method, length: int
) -> tuple[tuple[int, ...], list[int]]:
    """The text and the accept length of each round."""
    text, accept_lengths = PROMPT, []
    while len(text) < length:
        # a block drafter knows the text so far only: every depth gets logits of its own, made up from it
        shifted = [(*text[-2:], text[-1])[d % 2 : d % 2 + 2] for d in range(method.depth)]
        scores = np.stack([filtered_scores(drafter.logits(pair), *drawing.filters) for pair in shifted])
        known = None
        if method.knows_noise and drawing.filters[0] > 0:
            known = np.stack([gumbel(drawing.seed, 0, len(text) + d, VOCAB) for d in range(method.depth)])
        log_probs, ids = candidates(scores, 1 if method.is_chain else VOCAB, known)
        tree = build_tree(log_probs, ids, method.budget)
        targets = [drawing.token(target, text + tree.path(node)) for node in range(-1, len(tree))]
        committed = accept(tree, targets).tokens(tree).tolist()
        accept_lengths.append(len(committed))
        text = (*text, *committed)
    return text[:length], accept_lengths


METHODS = st.builds(Method, st.integers(0, 12), st.integers(1, 4), st.booleans(), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(FILTERS), st.integers(0, 2**64 - 1), METHODS)
def test_the_same_seed_gives_the_same_text(
    target_seed: int, drafter_seed: int, filters: Filters, seed: int, method: Method
) -> None:
    target, drafter = TableModel.random(target_seed), TableModel.random(drafter_seed)
    drawing = Drawing(filters, seed)
    text, _ = write_speculatively(target, drafter, drawing, method, 24)
    assert text == write_plainly(target, drawing, 24)


@pytest.mark.parametrize("filters", FILTERS[1:])
@pytest.mark.parametrize("is_chain", [True, False])
def test_texts_are_distributed_as_the_target_says(filters: Filters, is_chain: bool) -> None:
    """The first two tokens together, over seeds, with a drafter that leans the wrong way."""
    target, drafter = TableModel.random(1), TableModel.random(2)
    method = Method(budget=6, depth=2, is_chain=is_chain, knows_noise=True)
    num_seeds = 700
    expected: dict[tuple[int, ...], float] = {PROMPT: 1.0}
    for _ in range(2):
        expected = {
            (*text, token): mass * share
            for text, mass in expected.items()
            for token, share in enumerate(softmax(filtered_scores(target.logits(text), *filters)))
            if share > 0
        }
    counts = Counter(
        write_speculatively(target, drafter, Drawing(filters, seed), method, len(PROMPT) + 2)[0]
        for seed in range(num_seeds)
    )
    assert set(counts) <= set(expected)
    # cells that expect less than five are taken together, as the test demands
    observed, wanted = [0.0], [0.0]
    for text, mass in expected.items():
        if mass * num_seeds < 5:
            observed[0] += counts[text]
            wanted[0] += mass * num_seeds
        else:
            observed.append(counts[text])
            wanted.append(mass * num_seeds)
    alive = [i for i, value in enumerate(wanted) if value > 0]
    assert stats.chisquare([observed[i] for i in alive], [wanted[i] for i in alive]).pvalue > 1e-3


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(scores.astype(np.float64) - scores.max())
    return weights / weights.sum()


def test_knowing_the_noise_lengthens_what_is_accepted() -> None:
    target = TableModel.random(5)
    drawings = [Drawing((1.0, 0, 1.0, 0.0), seed) for seed in range(40)]

    def rounds(knows_noise: bool) -> int:
        method = Method(budget=3, depth=3, is_chain=False, knows_noise=knows_noise)
        return sum(len(write_speculatively(target, target, drawing, method, 24)[1]) for drawing in drawings)

    assert rounds(knows_noise=True) < rounds(knows_noise=False)
