"""Folders of safetensors: what is missing, extra, misshapen, pickled or cut short is named."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import TinyShape, write_target

from treegraft.errors import CheckpointError, UnsupportedModelError
from treegraft.models.checkpoint import check_tensors, read_folder
from treegraft.models.registry import ModelFiles, load_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_target(tmp_path / "model", TinyShape(num_layers=1, tie_embeddings=False))


def load(folder: Path) -> None:
    load_target(ModelFiles("folder", folder, "tiny"), torch.float32, "cpu")


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Add, replace or (None) drop tensors; dots are spelled __."""
    file = folder / "model.safetensors"
    held = load_file(file)
    for spelled, tensor in tensors.items():
        name = spelled.replace("__", ".")
        if tensor is None:
            del held[name]
        else:
            held[name] = tensor
    save_file(held, file)


def test_missing_extra_and_misshapen_tensors_are_named_together(folder: Path) -> None:
    change(
        folder,
        model__norm__weight=None,
        model__odd__weight=torch.ones(2),
        model__layers__0__mlp__up_proj__weight=torch.ones(2, 3),
    )
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    for words in (
        "missing tensor(s) model.norm.weight",
        "extra tensor(s) model.odd.weight",
        "model.layers.0.mlp.up_proj.weight has shape [2, 3], expected [48, 32]",
    ):
        assert words in str(caught.value)


def test_a_vocabulary_smaller_than_the_config_says_is_refused(folder: Path) -> None:
    change(folder, lm_head__weight=torch.ones(20, 32))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight has shape \[20, 32\]"):
        load(folder)


def test_rotary_buffers_of_older_exporters_are_let_be(folder: Path) -> None:
    change(folder, model__layers__0__self_attn__rotary_emb__inv_freq=torch.ones(4))
    load(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_are_refused(folder: Path, value: float) -> None:
    bad = torch.ones(32)
    bad[3] = value
    change(folder, model__norm__weight=bad)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has NaN or infinite"):
        load(folder)


def test_a_tied_head_written_out_twice_must_be_the_embedding(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", TinyShape(num_layers=1, tie_embeddings=True))
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    change(folder, lm_head__weight=embedding.clone())
    load(folder)
    change(folder, lm_head__weight=embedding + 1)
    with pytest.raises(CheckpointError, match="tie_word_embeddings"):
        load(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_by_name_and_not_opened(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps({"weight": 1}))
    with pytest.raises(CheckpointError, match=rf"pickled weights only \({name}\)"):
        load(folder)


def test_a_cut_file_and_a_foreign_file_are_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for content, words in (
        (whole[:-10], "its header promises"),
        (whole[:100], "cut short inside its header"),
        (b"PK\x03\x04" * 10, "no safetensors file"),
        (b"", "no safetensors file"),
    ):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=words):
            read_folder(folder)


def test_packed_dtypes_are_refused_by_name(folder: Path) -> None:
    change(folder, model__norm__weight=torch.ones(32, dtype=torch.int32))
    with pytest.raises(UnsupportedModelError, match=r"model\.norm\.weight has dtype I32"):
        load(folder)


def shard(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {n: f for f, held in files.items() for n in held}}))
    return index


def test_shards_are_read_through_their_index(folder: Path) -> None:
    whole = set(read_folder(folder))
    shard(folder)
    assert set(read_folder(folder)) == whole
    load(folder)


def test_shards_that_lack_or_disagree_are_named(folder: Path) -> None:
    index = shard(folder)
    document = json.loads(index.read_text())
    document["weight_map"]["model.ghost"] = "model-1.safetensors"
    index.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"disagree on 1 tensor\(s\): model\.ghost"):
        read_folder(folder)
    del document["weight_map"]["model.ghost"]
    document["weight_map"]["model.norm.weight"] = "../secret.safetensors"
    index.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"\.\./secret\.safetensors"):
        read_folder(folder)
    shards = {**document["weight_map"], "model.norm.weight": "model-3.safetensors"}
    index.write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match=r"names model-3\.safetensors, which is not in"):
        read_folder(folder)


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no weights"):
        read_folder(tmp_path)


def test_many_faults_are_cut_to_one_line() -> None:
    with pytest.raises(CheckpointError) as caught:
        check_tensors({}, {f"t{i:02}": (1,) for i in range(40)}, "somewhere")
    assert "and 34 more" in str(caught.value)
    assert len(str(caught.value)) < 200
