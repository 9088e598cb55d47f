from pathlib import Path

import pytest

from treegraft.errors import UsageError
from treegraft.training.config import DataConfig, DrafterShape, RunConfig, read_config


def config(folder, text):
    path = folder / "config.toml"
    path.write_text(text)
    return read_config(path)


def test_a_target_is_enough(tmp_path):
    found = config(tmp_path, 'target = "tiny"')
    assert found.target == "tiny"
    assert found.drafter == DrafterShape()


@pytest.mark.parametrize(
    ("section", "line", "message"),
    [
        ("data", "temperature_shares = [0.5, 0.5]", "data.temperature_shares"),
        ("data", "temperature_shares = [0.5, 0.4, 0.2]", "add up to 1"),
        ("data", "temperature_shares = [1.5, -0.7, 0.2]", "data.temperature_shares"),
        ("data", "temperatures = [0.0, -1.0, 1.0]", "data.temperatures"),
        ("data", "temperatures = [0.0, nan, 1.0]", "data.temperatures"),
        ("data", "share_prompts = -0.1", "data.share_prompts"),
        ("data", "share_prompts = 0.8", "data.share_starters"),
        ("data", "user_min_p = 0.0", "data.user_min_p"),
        ("data", "rows_per_shard = 0", "data.rows_per_shard"),
        ("data", "max_shards = 0", "data.max_shards"),
        ("data", "row_tokens = 1", "data.row_tokens"),
        ("data", "min_reply_tokens = 0", "data.min_reply_tokens"),
        ("drafter", "block_size = 1", "drafter.block_size"),
        ("drafter", "num_layers = 0", "drafter.num_layers"),
        ("drafter", "head_width = -1", "drafter.head_width"),
        ("run", "rows = 0", "run.rows"),
        ("run", "anchors = 0", "run.anchors"),
        ("run", "passes = 0", "run.passes"),
        ("run", "steps = 10", "exactly one of steps and minutes"),
        ("run", "minutes = 0", "exactly one of steps and minutes"),
        ("run", 'optimiser = "sgd"', "run.optimiser"),
        ("run", "warmup = 1.0", "run.warmup"),
        ("run", "decay = 0.0", "run.decay"),
        ("run", "conditional_share = 1.5", "run.conditional_share"),
        ("run", "validate_rows = -1", "run.validate_rows"),
        ("run", 'rows = "many"', "run.rows"),
        ("run", "speed = 9", "speed"),
    ],
)
def test_a_bad_value_is_named_with_its_key(tmp_path, section, line, message):
    with pytest.raises(UsageError, match=message) as caught:
        config(tmp_path, f'target = "tiny"\n[{section}]\n{line}\n')
    assert "expected" in str(caught.value).lower() or "contains unknown field" in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("target = ", "is no TOML"), ("", "target"), ("[run]", "target")])
def test_what_is_no_configuration_is_refused(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        config(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


@pytest.mark.parametrize("section", [DataConfig, DrafterShape, RunConfig])
def test_every_key_is_documented(section):
    text = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    table = text[text.index("## Configuration") :]
    assert [name for name in section.__struct_fields__ if f"`{name}`" not in table.replace(".", "`")] == []
