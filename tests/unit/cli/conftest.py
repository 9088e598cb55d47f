"""Commands run in this process here."""

import pytest


@pytest.fixture(autouse=True)
def _own_logging(own_logging: None) -> None:
    """Every test of this folder cleans up what logging a command set up."""
