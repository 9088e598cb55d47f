"""The packaged tables are valid, sourced and consistent; a bad row is refused."""

import json
import re

import msgspec
import pytest

from treegraft.environments.rules.tables import (
    TABLES,
    CudaDriver,
    Glibc,
    Group,
    Row,
    Soname,
    StdlibModule,
    TorchPair,
    group_of,
    parse,
    table,
)


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_source_and_date(name: str) -> None:
    rows = table(name, TABLES[name])
    assert rows
    assert all(row.source and re.fullmatch(r"20\d\d-\d\d-\d\d", row.date) for row in rows)


def test_keys_are_unique() -> None:
    keys = {CudaDriver: "cuda_major", Glibc: "version", TorchPair: "torch", Group: "name", Soname: "soname"}
    keys[StdlibModule] = "module"
    for name, row_type in TABLES.items():
        if row_type in keys:
            values = [getattr(row, keys[row_type]) for row in table(name, row_type)]
            assert len(values) == len(set(values)), name


@pytest.mark.parametrize(
    "row",
    [
        {"cuda_major": 12, "min_driver": "525", "date": "2026-01-01"},
        {"cuda_major": 12, "min_driver": "525", "source": "", "date": "2026-01-01"},
        {"cuda_major": 12, "min_driver": "525", "source": "s", "date": "lately"},
        {"cuda_major": "12", "min_driver": "525", "source": "s", "date": "2026-01-01"},
        {"cuda_major": 12, "min_driver": "525", "source": "s", "date": "2026-01-01", "more": 1},
    ],
)
def test_bad_rows_are_refused(row: dict[str, object]) -> None:
    document = {"kind": "rule-table", "version": 1, "rows": [row]}
    with pytest.raises((ValueError, msgspec.ValidationError)):
        parse(json.dumps(document).encode(), CudaDriver)


def test_other_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="rule-table"):
        parse(b'{"kind": "plan", "version": 1, "rows": []}', Row)


def test_groups() -> None:
    assert [g.name if (g := group_of(n)) else None for n in ("nvidia-cublas-cu12", "torch", "numpy")] == [
        "torch",
        "torch",
        None,
    ]
