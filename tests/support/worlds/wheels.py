"""Toy wheels: valid archives of a few files, written to a folder or straight into a site-packages folder.

Knows the wheel and dist-info formats; does not know compilers, environments or indexes.
"""

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

EPOCH = (2024, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """`files`: path in site-packages -> content. `entry_points`: group -> {name: value}.

    requires: Requires-Dist values as written in METADATA.
    """

    name: str
    version: str
    files: Mapping[str, bytes | str]
    requires: tuple[str, ...] = ()
    entry_points: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tag: str = "py3-none-any"
    requires_python: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tag}.whl"

    @property
    def dist_info(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info"

    def with_files(self, files: Mapping[str, bytes | str]) -> "Wheel":
        """The same dist with files added or replaced."""
        return replace(self, files={**self.files, **files})

    def metadata(self) -> str:
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        if self.requires_python:
            lines.append(f"Requires-Python: {self.requires_python}")
        lines += [f"Requires-Dist: {value}" for value in self.requires]
        return "\n".join([*lines, "", "A toy for tests.", ""])

    def contents(self) -> dict[str, bytes]:
        """All files of the archive but RECORD."""
        files = {path: _as_bytes(data) for path, data in self.files.items()}
        files[f"{self.dist_info}/METADATA"] = self.metadata().encode()
        is_pure = self.tag.endswith("none-any")
        files[f"{self.dist_info}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: toy (1.0)\nRoot-Is-Purelib: {str(is_pure).lower()}\nTag: {self.tag}\n"
        ).encode()
        if self.entry_points:
            groups = [
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items())
                for group, rows in self.entry_points.items()
            ]
            files[f"{self.dist_info}/entry_points.txt"] = "\n".join(groups).encode()
        return files

    def build(self, folder: Path) -> Path:
        """Write the .whl; the same wheel gives the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        contents = self.contents()
        record_path = f"{self.dist_info}/RECORD"
        contents[record_path] = record_text(contents, record_path).encode()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in contents.items():
                info = zipfile.ZipInfo(path, EPOCH)
                info.external_attr = (0o755 if path.endswith(".so") or ".so." in path else 0o644) << 16
                archive.writestr(info, data, zipfile.ZIP_DEFLATED)
        wheel = folder / self.file_name
        wheel.write_bytes(buffer.getvalue())
        return wheel

    def unpack(self, site_packages: Path, installer: str = "uv") -> None:
        """Lay the files out as an installer would, entry point scripts left out. For many quick environments."""
        contents = self.contents()
        contents[f"{self.dist_info}/INSTALLER"] = installer.encode()
        contents[f"{self.dist_info}/REQUESTED"] = b""
        record_path = f"{self.dist_info}/RECORD"
        contents[record_path] = record_text(contents, record_path).encode()
        for path, data in contents.items():
            target = site_packages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def record_text(contents: Mapping[str, bytes], record_path: str) -> str:
    """RECORD of these files: sha256 in urlsafe base64 without padding, then the size."""
    rows = [f"{_quoted(path)},sha256={record_hash(data)},{len(data)}" for path, data in contents.items()]
    return "\n".join([*rows, f"{record_path},,", ""])


def record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _quoted(path: str) -> str:
    return f'"{path}"' if any(c in path for c in ',"\n') else path


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
