"""Sources made to cost time: the reader of module-level loads gives up early and keeps what it has."""

import pytest

from treegraft.environments.agent.python_loads import MAX_STEPS, scan

DOUBLING_CALLS = "import first\n" + "".join(
    f"def f{n}():\n    f{n + 1}()\n    f{n + 1}()\n" for n in range(40)
) + "def f40():\n    import last\nf0()\n"  # fmt: skip
DOUBLING_NAMES = "import first, ctypes\nn0 = ('a.so', 'b.so')\n" + "".join(
    f"n{n} = ({', '.join([f'n{n - 1}'] * 40)})\n" for n in range(1, 7)
) + "ctypes.CDLL(n6)\n"  # fmt: skip


@pytest.mark.parametrize("source", [DOUBLING_CALLS, DOUBLING_NAMES], ids=["calls", "names"])
def test_exponential_source_is_given_up(source: str) -> None:
    events = scan(source.encode(), "m", False)
    assert events[0] == ["import", "first", "", []]
    assert len(events) < MAX_STEPS


@pytest.mark.parametrize(
    "source", [b"(" * 5000, b"x = " + b"-" * 50_000 + b"1", b"\x00", b"\xff", b"if 1:\n" * 90, b"a" * 300_000]
)
def test_odd_source_gives_no_events(source: bytes) -> None:
    assert scan(source, "m", False) == []
