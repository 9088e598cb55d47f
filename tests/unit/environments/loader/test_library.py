"""Which references a library's definitions satisfy, after glibc's check_match."""

import pytest
from inventories import native

from treegraft.environments.loader.library import Library, split_symbol

LIBRARY = Library(
    native(
        "lib/libv.so.1",
        soname="libv.so.1",
        version_definitions=("libv.so.1", "V_1.0", "V_2.0", "V_3.0"),
        exports=("both@V_1.0", "both@@V_2.0", "late@V_3.0", "first@V_1.0", "plain"),
        weak_exports=("soft",),
    ),
    "/env/lib/libv.so.1",
)


@pytest.mark.parametrize(
    ("reference", "binds"),
    [
        ("both", True),
        ("both@V_1.0", True),
        ("both@V_2.0", True),
        ("both@V_3.0", False),
        ("first", True),  # the oldest version serves an unversioned reference though it is hidden
        ("late", False),  # a hidden later one does not
        ("late@V_3.0", True),
        ("plain", True),
        ("plain@V_9.0", True),  # an unversioned definition serves any version
        ("soft", True),
        ("gone", False),
    ],
)
def test_defines(reference: str, binds: bool) -> None:
    assert LIBRARY.defines(reference) is binds


def test_split_symbol() -> None:
    assert split_symbol("f") == ("f", None, True)
    assert split_symbol("f@V") == ("f", "V", False)
    assert split_symbol("f@@V") == ("f", "V", True)


def test_damage_in_section_headers_does_not_hinder_loading() -> None:
    def damaged(problem: str) -> bool:
        return Library(native("l.so", partial=True, problem=problem), "/l.so").is_damaged

    assert not damaged("truncated: section headers lies at 1+2 of 2 bytes")
    assert damaged("truncated: section headers lies at 1+2 of 2 bytes; truncated: a loaded string table ends")
    assert damaged("truncated: program headers")
