"""scripts/setup_env.py: which Python, which torch, and what a second run does. The whole set-up runs once here, in a
copy of the checkout, on top of the interpreter that runs the tests."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "setup_env.py"

# A pip that answers --report with a document and notes every other call.
FAKE_PIP = """#!/bin/sh
case "$*" in
  *--report*) cat "$(dirname "$0")/report.json" ;;
  *) echo "$*" >> "$(dirname "$0")/calls" ;;
esac
"""


@pytest.fixture
def setup_env() -> ModuleType:
    """A fresh import of the script."""
    spec = importlib.util.spec_from_file_location("setup_env", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "is_good"),
    [
        ("2.11.0", True),
        ("2.13.0+cpu", True),
        ("2.14.1+cu130", True),
        ("2.14.0a0+git1", True),
        ("2.10.1", False),
        ("2.15.0", False),
        ("3.0", False),
        ("1.13.1", False),
        ("odd", False),
    ],
)
def test_range_of_torch(setup_env: ModuleType, version: str, is_good: bool) -> None:
    assert setup_env.in_range(version) is is_good


@pytest.mark.parametrize(
    ("url", "version", "requires", "is_cpu"),
    [
        ("file:///wheels/torch-2.13.0-cp311.whl", "2.13.0", ["nvidia-cublas-cu12"], True),
        ("https://index/torch-2.13.0%2Bcpu-cp311.whl", "2.13.0+cpu", ["sympy"], True),
        ("https://index/torch-2.13.0-cp311.whl", "2.13.0", ["sympy", "jinja2"], True),
        (
            "https://index/torch-2.13.0-cp311.whl",
            "2.13.0",
            ["sympy", 'nvidia-cublas; platform_system == "Linux"'],
            False,
        ),
        ("https://index/torch-2.13.0-cp311.whl", "2.13.0", ["cuda-bindings<14"], False),
    ],
)
def test_when_pip_leads_to_a_cpu_build(
    setup_env: ModuleType, tmp_path: Path, url: str, version: str, requires: list[str], is_cpu: bool
) -> None:
    item = {"download_info": {"url": url}, "metadata": {"version": version, "requires_dist": requires}}
    (tmp_path / "report.json").write_text(json.dumps({"install": [item]}))
    pip = executable(tmp_path / "pip", FAKE_PIP)
    assert setup_env.pip_finds_cpu_torch([str(pip)]) is is_cpu


@pytest.mark.parametrize("answer", ["", "not json", '{"install": []}'])
def test_a_pip_without_an_answer_leads_nowhere(setup_env: ModuleType, tmp_path: Path, answer: str) -> None:
    (tmp_path / "report.json").write_text(answer)
    assert setup_env.pip_finds_cpu_torch([str(executable(tmp_path / "pip", FAKE_PIP))]) is False


@pytest.mark.parametrize(("version", "is_good"), [("2.12.0+cu130", True), ("2.9.0", False)])
def test_an_installed_torch_is_never_replaced(
    setup_env: ModuleType, tmp_path: Path, version: str, is_good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = executable(tmp_path / "bin" / "python", f"#!/bin/sh\necho {version}\n")
    monkeypatch.setattr(setup_env, "VENV_PYTHON", python)
    pip = [str(executable(tmp_path / "pip", FAKE_PIP))]
    if is_good:
        assert setup_env.install_torch(pip) == version
    else:
        with pytest.raises(
            setup_env.SetupError, match=rf"has torch {version}; treegraft needs 2\.11 to 2\.14 and replaces"
        ):
            setup_env.install_torch(pip)
    assert not (tmp_path / "calls").exists()


def test_the_constraint_pins_the_torch_that_is_there(setup_env: ModuleType, tmp_path: Path) -> None:
    pip = executable(
        tmp_path / "pip", '#!/bin/sh\nfor word in "$@"; do if test -f "$word"; then cat "$word"; fi; done > "$0.seen"\n'
    )
    setup_env.install_package([str(pip)], {"server"}, "2.12.0+cu130")
    assert Path(f"{pip}.seen").read_text() == "torch==2.12.0+cu130\n"


def run_setup(
    checkout: Path, *words: str, python: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, "scripts/setup_env.py", *words]
    return subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=False, env={**env, **environment}
    )


def test_another_python_is_passed_over_for_a_good_one_on_the_path(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if only 3.97 and 3.98 would do: this interpreter will not, nor a shim that does not start."""
    monkeypatch.setattr(setup_env, "PYTHONS", ((3, 97), (3, 98)))
    monkeypatch.setenv("PATH", str(tmp_path))
    shim = executable(tmp_path / "python3.98", "#!/bin/sh\nexit 127\n")
    with pytest.raises(setup_env.SetupError, match=r"there is no python3\.12 or python3\.11 on the PATH") as error:
        setup_env.suitable_python()
    assert "\n" not in str(error.value)
    good = executable(tmp_path / "python3.97", "#!/bin/sh\necho 3 97\n")
    assert setup_env.suitable_python() == str(good)
    executable(shim, "#!/bin/sh\necho 3 98\n")
    assert setup_env.suitable_python() == str(shim)


def test_a_broken_venv_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "gone")
    done = run_setup(tmp_path)
    assert done.returncode == 1
    assert "does not start" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / ".venv" / "bin" / "python").is_symlink()


@pytest.mark.slow
def test_whole_set_up_uses_the_torch_that_is_there_and_a_second_run_does_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    version = metadata.version("torch")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(
        ROOT / "src" / "treegraft", checkout / "src" / "treegraft", ignore=shutil.ignore_patterns("__pycache__")
    )
    (checkout / "scripts").mkdir()
    shutil.copy(SCRIPT, checkout / "scripts")

    first = run_setup(checkout, "--extras", "engine")
    assert first.returncode == 0, first.stderr
    assert f"has torch {version}: it is used" in first.stderr
    python = checkout / ".venv" / "bin" / "python"
    script = "import torch, treegraft; print(torch.__file__, treegraft.__file__, sep='\\n')"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    seen = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, env=env, cwd=tmp_path)
    assert seen.stdout.splitlines() == [torch.__file__, str(checkout / "src" / "treegraft" / "__init__.py")]

    # Nothing is asked of any index the second time; a new extra or another pyproject.toml would.
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    second = run_setup(checkout, "--extras", "engine", **nowhere)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    (checkout / "pyproject.toml").write_text((checkout / "pyproject.toml").read_text() + "\n# changed\n")
    third = run_setup(checkout, "--extras", "engine", **nowhere)
    assert "installing treegraft" in third.stderr
