"""uv's options are the user's own; the platform follows the target's glibc."""

import zipfile
from pathlib import Path

import pytest
from inventories import dist

from treegraft.environments.index.resolve import _explain, _parse
from treegraft.environments.index.stubs import stub_name, version_of, write_stubs
from treegraft.environments.index.uv import platform_of, run_uv, user_find_links, uv_variables


def test_pips_options_serve_where_uvs_are_not_set() -> None:
    found = uv_variables(
        {"PIP_INDEX_URL": "https://i/simple", "PIP_FIND_LINKS": "/w", "UV_FIND_LINKS": "/u", "VIRTUAL_ENV": "/v"}
    )
    assert found["UV_DEFAULT_INDEX"] == "https://i/simple"
    assert found["UV_FIND_LINKS"] == "/u"
    assert "VIRTUAL_ENV" not in found
    assert uv_variables({"PIP_INDEX_URL": "a", "UV_INDEX_URL": "b"}).get("UV_DEFAULT_INDEX") is None


def test_find_links_of_the_user_stay_in_force() -> None:
    assert user_find_links({"UV_FIND_LINKS": "/a,/b"}) == ["--find-links", "/a", "--find-links", "/b"]
    assert user_find_links({}) == []


@pytest.mark.parametrize(
    ("libc", "expected"),
    [("2.39", "2_39"), ("2.17", "2_17"), ("2.26", "2_17"), ("2.99", "2_40"), ("", "2_17")],
)
def test_platform(libc: str, expected: str) -> None:
    assert platform_of("x86_64", libc) == f"x86_64-manylinux_{expected}"


def test_platform_names_are_ones_that_uv_knows(tmp_path: Path) -> None:
    for libc in ("2.17", "2.28", "2.40"):
        answer = run_uv(
            ["pip", "compile", "-", "--no-index", "--python-platform", platform_of("x86_64", libc)], folder=tmp_path
        )
        assert answer.is_ok, answer.error


def test_stubs_carry_metadata_and_nothing_else(tmp_path: Path) -> None:
    made = dist("my-dist", "1.0+cu130", requires=("other>=2",), requires_python=">=3.9")
    hostile = [dist("../../x"), dist("a", "1.0\n--index-url http://evil"), dist("-r", "1"), dist("odd", "1/../..")]
    write_stubs([made, made, *hostile], tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == stub_name(made) == "my_dist-1.0+cu130-py3-none-any.whl"
    assert version_of(path.as_uri()) == "1.0+cu130"
    with zipfile.ZipFile(path) as wheel:
        assert all(".dist-info/" in name for name in wheel.namelist())
        metadata = wheel.read("my_dist-1.0+cu130.dist-info/METADATA").decode()
    assert "Requires-Dist: other>=2" in metadata
    assert "Requires-Python: >=3.9" in metadata


def test_parse_annotated_pins() -> None:
    text = (
        "alpha==1.0\n    # via\n    #   -r -\n    #   beta\n    #   gamma-x\n"
        "beta @ file:///tmp/x/stubs/beta-2.0%2Bcu130-py3-none-any.whl\n    # via -r -\n"
        "gamma-x[extra]==3.0 ; python_version > '3'\n"
    )
    assert _parse(text) == {
        "alpha": ("1.0", ("beta", "gamma-x")),
        "beta": ("2.0+cu130", ()),
        "gamma-x": ("3.0", ()),
    }


def test_explanations_are_one_line() -> None:
    error = (
        "  × No solution found when resolving dependencies:\n"
        "  ╰─▶ Because a==1 depends on b==2\n      and you require b==1, ...\n"
    )
    assert _explain(error) == (
        "No solution found when resolving dependencies: Because a==1 depends on b==2 and you require b==1, ..."
    )
