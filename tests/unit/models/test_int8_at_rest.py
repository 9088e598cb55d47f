"""Int8 at rest: half a step at most is lost, the folder still loads, and what is not announced is refused."""

import json
from pathlib import Path

import pytest
import torch
from model_feeding import draft
from safetensors.torch import load_file
from tiny_models import TinyShape, write_drafter, write_target

from treegraft.errors import CheckpointError
from treegraft.models.int8_at_rest import quantise_folder, quantise_rows
from treegraft.models.registry import EMBEDDED, PACKAGED_DRAFTERS, ModelFiles, load_drafter, load_target

SHAPE = TinyShape(num_layers=2)


def test_rows_lose_half_a_step_at_most_and_zero_rows_stay_zero() -> None:
    weight = torch.randn(20, 64) * torch.logspace(-6, 3, 20)[:, None]
    weight[4] = 0
    quantised, scales = quantise_rows(weight)
    assert quantised.dtype == torch.int8
    error = (quantised.float() * scales[:, None] - weight).abs().amax(1)
    assert (error <= weight.abs().amax(1) * (0.5 / 127) * 1.001).all()
    assert not quantised[4].any()
    assert quantised.abs().amax() == 127


def test_a_quantised_folder_loads_and_drafts_alike(tmp_path: Path) -> None:
    target_folder = write_target(tmp_path / "target", SHAPE)
    plain = write_drafter(tmp_path / "plain", SHAPE)
    report = quantise_folder(plain, tmp_path / "int8")
    assert 0 < report.max_relative_error <= 0.5 / 127 * 1.001
    assert report.num_matrices == 1 + 2 * 7
    stored = load_file(tmp_path / "int8" / "model.safetensors")
    assert stored["fc.weight"].dtype == torch.int8
    assert report.num_bytes == (tmp_path / "int8" / "model.safetensors").stat().st_size

    target = load_target(ModelFiles("folder", target_folder, "t"), torch.float32, "cpu")
    hidden = []
    for folder in (plain, tmp_path / "int8"):
        drafter = load_drafter(ModelFiles("folder", folder, "d"), target, torch.float32, "cpu")
        kv, slots = drafter.allocate_pool(8), torch.arange(1, 7)[None]
        with torch.inference_mode():
            tapped = torch.randn(1, 6, 64, generator=torch.Generator().manual_seed(3))
            drafter.write_context(tapped, torch.arange(6)[None], slots, kv)
            hidden.append(draft(drafter, torch.tensor([2]), 6, kv, slots, width=5))
    assert 0 < (hidden[0] - hidden[1]).abs().max() < 0.05 * hidden[0].abs().max()


def test_quantising_twice_and_unannounced_int8_are_refused(tmp_path: Path) -> None:
    target_folder = write_target(tmp_path / "target", SHAPE)
    quantise_folder(write_drafter(tmp_path / "plain", SHAPE), tmp_path / "int8")
    with pytest.raises(CheckpointError, match="already"):
        quantise_folder(tmp_path / "int8", tmp_path / "again")
    config = tmp_path / "int8" / "config.json"
    document = json.loads(config.read_text())
    del document["treegraft_weights"]
    config.write_text(json.dumps(document))
    target = load_target(ModelFiles("folder", target_folder, "t"), torch.float32, "cpu")
    with pytest.raises(CheckpointError, match="does not announce"):
        load_drafter(ModelFiles("folder", tmp_path / "int8", "d"), target, torch.float32, "cpu")


def test_packaged_drafters_are_at_most_20_mb_and_belong_to_embedded_models() -> None:
    folders = [folder for folder in PACKAGED_DRAFTERS.iterdir() if folder.is_dir()]
    assert {folder.name for folder in folders} == set(EMBEDDED)
    assert sum(file.stat().st_size for folder in folders for file in folder.iterdir()) <= 20_000_000
