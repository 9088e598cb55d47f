"""All kinds of pairs, in one table, and how a seed becomes a pair. Knows no environment and no verdict."""

from random import Random

from worlds.compiling import Compiler
from worlds.pairs import kinds_files, kinds_layout, kinds_loading, kinds_search, kinds_symbols
from worlds.pairs.pair import Kind, Kit, Pair
from worlds.venvs import Python

KINDS: dict[str, Kind] = {
    **kinds_symbols.KINDS,
    **kinds_search.KINDS,
    **kinds_loading.KINDS,
    **kinds_files.KINDS,
    **kinds_layout.KINDS,
}


def make_pair(seed: int, number: int, compiler: Compiler, python: Python) -> tuple[str, Pair]:
    """Pair `number` of a run: the kinds take turns, the rest is drawn. The same arguments give the same pair."""
    names = list(KINDS)
    kind = names[number % len(names)]
    rng = Random(f"{seed}/{number}")
    return kind, KINDS[kind](Kit(rng, compiler, python))
