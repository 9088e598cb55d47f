"""Tests probe this machine as a user with few programs sees it: each program found is asked for its version."""

from pathlib import Path

import pytest

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@pytest.fixture(autouse=True)
def few_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", SYSTEM_PATH)
