"""What tests of several areas share: the embedded default model, fetched once a session; logging of commands."""

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def embedded_model() -> str:
    """Name of the embedded default, in the cache; where it cannot be fetched a test skips, and fails if CI=true."""
    pytest.importorskip("torch", reason="needs the extra engine")
    from treegraft.errors import TreegraftError
    from treegraft.models.pull import pull

    name = "smollm2-135m"
    try:
        pull(name)
    except TreegraftError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} cannot be fetched, which CI must be able to: {error}")
        pytest.skip(f"{name} cannot be fetched: {error}")
    return name


@pytest.fixture
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests that run commands in this process: the handler that a command installs (bound to the captured stderr of
    that test) goes away with the test, and only warnings are logged."""
    monkeypatch.setenv("TREEGRAFT_LOG_LEVEL", "warning")
    logger = logging.getLogger("treegraft")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers = []
    yield
    logger.handlers, logger.level, logger.propagate = before
