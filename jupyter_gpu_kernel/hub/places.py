"""Where the local side keeps its things: the hub's folder (machine-local, this protocol only) and the
user's records."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import secrets
import socket
import sys
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ..errors import HubError
from ..wire import PROTOCOL


def data_folder() -> Path:
    """<jupyter data dir>/gpu-kernel, 0700: records and hosts the owner trusts."""
    return _private(Path(jupyter_data_dir()) / "gpu-kernel")


def hub_folder() -> Path:
    """The hub's folder, 0700, short enough for a socket's path. One per user, data folder and protocol."""
    user = os.getuid() if sys.platform != "win32" else getpass.getuser()
    mark = hashlib.sha256(str(jupyter_data_dir()).encode()).hexdigest()[:8]
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    if not base.is_dir():
        base = Path(tempfile.gettempdir())
    return _private(base / f"jupyter-gpu-kernel-hub-{user}-{mark}-p{PROTOCOL}")


def hub_address() -> str:
    """Where the hub listens: a unix socket, or a named pipe on Windows."""
    folder = hub_folder()
    if sys.platform == "win32":
        return rf"\\.\pipe\{folder.name}"
    return str(folder / "hub")


def hub_key() -> bytes:
    """The key that faces and hub prove to each other. FileNotFoundError before the first hub."""
    return (hub_folder() / "key").read_bytes()


def make_hub_key() -> bytes:
    """A new key, 0600; by the hub alone, before it listens."""
    path = hub_folder() / "key"
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(secrets.token_bytes(32))
    os.replace(new, path)
    return path.read_bytes()


def owner() -> dict[str, str]:
    """{"owner": a mark of this user's data folder, "by": its name for people}: who has a kernel, told to its keeper."""
    path = data_folder() / "owner"
    with contextlib.suppress(FileExistsError), open(path, "x") as file:
        file.write(secrets.token_hex(8))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "somebody"
    return {"owner": path.read_text(), "by": f"{user}@{socket.gethostname()}"}


def trust_file() -> Path:
    """Our own known_hosts: host keys the owner accepted here. The user's files are never written."""
    return data_folder() / "known_hosts"


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.platform == "win32":
        return folder
    info = folder.lstat()
    if info.st_uid != os.getuid() or folder.is_symlink():
        raise HubError(
            f"{folder} belongs to somebody else",
            remedy="Set XDG_RUNTIME_DIR (or TMPDIR) to a folder of your own.",
        )
    if info.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
