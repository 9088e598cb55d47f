"""Keep secrets on the host: what may be sent of variables, URLs and command lines."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping

ALLOWED_VARIABLES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME",
    "PYTHONNOUSERSITE", "TORCH_CUDA_ARCH_LIST", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE",
    "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL",
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_CACHE_DIR", "HF_HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TMPDIR",
)  # fmt: skip
HIDDEN = "***"
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@]*@")
_QUERY_SECRET = re.compile(
    r"(?i)([?&][^=&\s]*(?:token|key|secret|password|passwd|signature|sig|auth)[^=&\s]*=)[^&\s#]+"
)
_ASSIGNED_SECRET = re.compile(
    r"(?i)\b([a-z0-9_]*(?:token|key|secret|password|passwd|credential)[a-z0-9_]*=)(?:\"[^\"]*\"|'[^']*'|[^\s&]+)"
)
_SECRET_OPTION = re.compile(r"(?i)^--?[a-z0-9_-]*(?:token|key|secret|password|passwd|credential|auth)[a-z0-9_-]*$")
_KNOWN_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|xox[bp]-|AKIA)[A-Za-z0-9_-]{8,}")
# a path part of an index URL that is a token: https://index.example/TOKEN/simple
_LONG_PART = re.compile(r"(?i)(://[^\s]*?/)([a-z0-9_-]{32,})(?=/)")


def redact_text(text: str) -> str:
    """URLs lose user info and secret query values; NAME_TOKEN=... assignments and well-known tokens are hidden."""
    text = _USERINFO.sub(r"\1" + HIDDEN + "@", text)
    text = _QUERY_SECRET.sub(r"\1" + HIDDEN, text)
    text = _ASSIGNED_SECRET.sub(r"\1" + HIDDEN, text)
    return _KNOWN_TOKEN.sub(HIDDEN, text)


def redact_url(url: str) -> str:
    return _LONG_PART.sub(r"\1" + HIDDEN, redact_text(url))


def redact_variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """The allow-listed variables that are set, secrets hidden."""
    return {name: redact_url(environ[name]) for name in ALLOWED_VARIABLES if environ.get(name)}


def redact_command(argv: List[str]) -> str:
    """One line of a process's arguments; the value after --api-key and its like is hidden."""
    shown: List[str] = []
    is_hidden = False
    for word in argv:
        shown.append(HIDDEN if is_hidden else redact_text(word))
        is_hidden = bool(_SECRET_OPTION.match(word))
    return " ".join(shown)[:2000]
