"""The two hosts of the story, furnished once."""

from collections.abc import Iterator

import pytest
from story_hosts import World, story_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with story_world(tmp_path_factory.mktemp("story")) as world:
        yield world
