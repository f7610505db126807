"""The agent's folder, as install.sh makes it on a node."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_kernel.hub.node.install import Package


def files_of(package: Package) -> dict[str, str]:
    """The content of each file, by its path."""
    words = package.data.decode().split("\0")
    return dict(zip(words[::2], words[1::2], strict=True))


def unpack(package: Package, folder: Path) -> None:
    """Write the files."""
    for path, content in files_of(package).items():
        (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / path).write_text(content, "utf-8")
