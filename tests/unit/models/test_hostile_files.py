"""Files that lie about themselves: each is one clear line of a ModelError, never another exception."""

import json
import shutil
import struct

import pytest
import torch
from tiny_models import TinyShape, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

from treegraft.errors import ModelError, TreegraftError, UsageError
from treegraft.models import registry

HUGE = 10**12
DEEP = b"[" * 200_000
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    qwen3 = TinyShape(architecture="qwen3", sliding_window=6)
    return {
        "target": write_target(root / "t", TinyShape()),
        "qwen3": write_target(root / "q", qwen3),
        "drafter": write_drafter(root / "d", TinyShape()),
    }


@pytest.fixture
def copy(pair, tmp_path):
    def make(kind, **keys):
        folder = tmp_path / "copy"
        shutil.copytree(pair[kind], folder)
        config = json.loads((folder / "config.json").read_text()) | keys
        (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
        return folder

    return make


def load(folder):
    files = registry.resolve(str(folder))
    registry.load_tokenizer(files)
    return registry.load_target(files, torch.float32, "cpu")


def assert_refused(load_it, error_type=ModelError):
    with pytest.raises(error_type) as caught:
        load_it()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


@pytest.mark.parametrize(
    "keys",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": HUGE},
        {"num_hidden_layers": -1},
        {"hidden_size": HUGE},
        {"hidden_size": "x" * 100_000},
        {"hidden_size": 32.0},
        {"vocab_size": 10**30},
        {"max_position_embeddings": HUGE},
        {"rope_theta": 10**400},
        {"rms_norm_eps": -1},
        {"architectures": 5},
        {"architectures": [["x"]]},
        {"architectures": "LlamaForCausalLM"},
        {"eos_token_id": [[1]]},
        {"eos_token_id": 10**30},
        {"eos_token_id": [True]},
        {"rope_scaling": {"rope_type": ["x"]}},
        {"rope_scaling": {"rope_type": "linear", "factor": 0}},
        {"a\nb": 1},
        {"x" * 100_000: 1},
    ],
    ids=lambda keys: str(keys)[:40],
)
def test_absurd_configs(copy, keys):
    assert_refused(lambda: load(copy("target", **keys)))


@pytest.mark.parametrize(
    "keys",
    [
        {"layer_types": 5},
        {"layer_types": [["x"]] * 3},
        {"layer_types": ..., "max_window_layers": "x"},
        {"layer_types": ..., "max_window_layers": None},
        {"sliding_window": 0},
    ],
    ids=str,
)
def test_absurd_windows(copy, keys):
    assert_refused(lambda: load(copy("qwen3", **keys)))


@pytest.mark.parametrize(
    "keys",
    [
        {"block_size": HUGE},
        {"num_hidden_layers": HUGE},
        {"num_target_layers": 5},
        {"dflash_config": 5},
        {"dflash_config": {"mask_token_id": True, "target_layer_ids": [0]}},
        {"dflash_config": {"mask_token_id": 23, "target_layer_ids": [True, False]}},
        {"final_logit_softcapping": "x"},
        {"final_logit_softcapping": -1},
        {"is_causal": "x"},
        {"architectures": 5},
    ],
    ids=str,
)
def test_absurd_drafters(pair, copy, keys):
    target = load(pair["target"])
    files = registry.resolve(str(copy("drafter", **keys)))
    assert_refused(lambda: registry.load_drafter(files, target, torch.float32, "cpu"))


@pytest.mark.parametrize("data", [b"", b"\0", DEEP, b"[]", b"5", b"\xff{}", b'{"a":' + b"9" * 5000 + b"}"])
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
    ],
)
def test_files_that_are_no_json_object(copy, name, data):
    folder = copy("target")
    if name == "tokenizer_config.json":
        write_tokenizer(folder, 24)
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").rename(folder / "shard.safetensors")
    (folder / name).write_bytes(data)
    assert_refused(lambda: load(folder))


def test_a_template_that_is_no_text(copy):
    folder = write_tokenizer(copy("target"), 24)
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "chat_template.jinja" in assert_refused(lambda: load(folder))


def packed(header, body):
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data + body


HEADERS = {
    "a list": lambda _: b"[]",
    "a string": lambda _: b'"x"',
    "deep": lambda _: DEEP,
    "no UTF-8": lambda _: b'{"\xff": 1}',
    "no offsets": lambda h: h | {NORM: {"dtype": "F32", "shape": [32]}},
    "entry a list": lambda h: h | {NORM: [1]},
    "overlapping": lambda h: h | {NORM: h[NORM] | {"data_offsets": [0, 128]}},
    "negative offset": lambda h: h | {NORM: h[NORM] | {"data_offsets": [-4, 124]}},
    "backward": lambda h: h | {NORM: h[NORM] | {"data_offsets": h[NORM]["data_offsets"][::-1]}},
    "one offset": lambda h: h | {NORM: h[NORM] | {"data_offsets": [0]}},
    "offsets of text": lambda h: h | {NORM: h[NORM] | {"data_offsets": ["a", "b"]}},
    "offsets of a googol": lambda h: h | {NORM: h[NORM] | {"data_offsets": [10**100, 10**100 + 128]}},
    "negative shape": lambda h: h | {NORM: h[NORM] | {"shape": [-32]}},
    "no shape": lambda h: h | {NORM: h[NORM] | {"shape": None}},
    "another dtype": lambda h: h | {NORM: h[NORM] | {"dtype": "F64"}},
    "unknown dtype": lambda h: h | {NORM: h[NORM] | {"dtype": "F99"}},
    "dtype a list": lambda h: h | {NORM: h[NORM] | {"dtype": ["F32"]}},
}


@pytest.mark.parametrize("fault", HEADERS)
def test_safetensors_headers(copy, fault):
    file = copy("target") / "model.safetensors"
    data = file.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    file.write_bytes(packed(HEADERS[fault](json.loads(data[8:start])), data[start:]))
    assert "model.safetensors" in assert_refused(lambda: load(file.parent))


@pytest.mark.parametrize(
    "data", [b"", b"1234", struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 99_000_000) + b"{}"]
)
def test_safetensors_lengths(copy, data):
    file = copy("target") / "model.safetensors"
    file.write_bytes(data)
    assert_refused(lambda: load(file.parent))


def entry(key, kind, value):
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


LLAMA = entry(b"general.architecture", 8, struct.pack("<Q", 5) + b"llama")
HOSTILE_GGUF = {
    "counts": struct.pack("<QQ", 2**60, 2**60),
    "nested arrays": struct.pack("<QQ", 0, 1) + entry(b"a", 9, struct.pack("<IQ", 9, 1) * 5000),
    "long array": struct.pack("<QQ", 0, 1) + entry(b"a", 9, struct.pack("<IQ", 4, 2**62)),
    "alignment 0": struct.pack("<QQ", 0, 1) + entry(b"general.alignment", 4, struct.pack("<I", 0)),
    "alignment of text": struct.pack("<QQ", 0, 1) + entry(b"general.alignment", 8, struct.pack("<Q", 1) + b"x"),
    "dimensions": struct.pack("<QQ", 1, 0) + struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**31),
    "overflow": struct.pack("<QQ", 1, 0) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQQIQ", 2, 2**63, 4, 0, 0),
    "layers": struct.pack("<QQ", 0, 3)
    + LLAMA
    + entry(b"llama.block_count", 4, struct.pack("<I", 2**32 - 1))
    + entry(b"llama.attention.head_count", 4, struct.pack("<I", 1)),
}


@pytest.mark.parametrize("fault", HOSTILE_GGUF)
@pytest.mark.filterwarnings("error")
def test_gguf_headers(tmp_path, fault):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<I", 3) + HOSTILE_GGUF[fault] + b"\0" * 16)
    message = assert_refused(lambda: load(file))
    if fault == "layers":
        assert "at most" in message


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-that-name/x", "a\0b", "", "/dev/null"])
def test_names_that_are_no_path(name):
    assert_refused(lambda: registry.resolve(name), UsageError)


def test_links_and_odd_names_are_served(pair, tmp_path):
    odd = tmp_path / "with space ü"
    odd.symlink_to(pair["target"])
    assert load(odd).config.num_layers == 3
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(lambda: load(tmp_path / "loop"), TreegraftError)


def test_a_pool_that_does_not_fit_in_memory():
    from treegraft.models.attention import KVPool

    message = assert_refused(lambda: KVPool.allocate(64, 2**31 - 1, 64, 128, torch.float32, "cpu"))
    assert "num_slots" in message
