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

_SOCKET = 103
"""Bytes that the path of a socket may have on every system."""


def data_folder() -> Path:
    """<jupyter data dir>/gpu-kernel, 0700: records and hosts the owner trusts."""
    return _private(Path(jupyter_data_dir()) / "gpu-kernel")


def hub_folder() -> Path:
    """The hub's folder, 0700, short enough for a socket's path. One per user, data folder and protocol."""
    user = os.getuid() if sys.platform != "win32" else getpass.getuser()
    mark = hashlib.sha256(str(jupyter_data_dir()).encode()).hexdigest()[:8]
    name = f"jupyter-gpu-kernel-hub-{user}-{mark}-p{PROTOCOL}"
    bases = [Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()), Path(tempfile.gettempdir())]
    if sys.platform != "win32":  # whose pipes are in no folder
        bases = [base for base in bases if len(os.fsencode(base / name / "hub")) <= _SOCKET] + [Path("/tmp")]
    return _private(next((base for base in bases if base.is_dir()), bases[-1]) / name)


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
    """{"owner": a mark of this user's hub here, "by": its name for people}: who has a kernel, told to its keeper.

    Two hubs of one home must not have the same one: each would take a kernel back from the other, for ever.
    """
    host = socket.gethostname()
    mark = hashlib.sha256(f"{_secret()}\n{hub_folder()}\n{host}".encode()).hexdigest()[:16]
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "somebody"
    return {"owner": mark, "by": f"{user}@{host}"}


def _secret() -> str:
    """A random text of this data folder, the same for ever; whole, whoever else makes it now."""
    path = data_folder() / "owner"
    with contextlib.suppress(FileNotFoundError):
        if said := path.read_text():
            return said
    new = path.with_name(f"owner-{secrets.token_hex(4)}")
    new.write_text(secrets.token_hex(8))
    os.replace(new, path)
    return path.read_text()


def trust_file() -> Path:
    """Our own known_hosts: host keys the owner accepted here. The user's files are never written."""
    return data_folder() / "known_hosts"


def _private(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HubError(
            f"{folder} cannot be made: {error.strerror}",
            remedy="Make room or rights, or set XDG_RUNTIME_DIR or JUPYTER_DATA_DIR to a folder of your own.",
        ) from error
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
