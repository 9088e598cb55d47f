"""How file names travel: as text that JSON can hold. Knows no file system."""

from __future__ import annotations


def show(name: str) -> str:
    """A name with the bytes that are not UTF-8 (surrogates, to Python) written as backslash escapes."""
    if name.isascii():
        return name
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode("utf-8")
    return name


def is_inside(path: str, folder: str) -> bool:
    """Whether an absolute, normalised path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
