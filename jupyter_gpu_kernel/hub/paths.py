"""The files of the local side: the hub's folder (of this machine and protocol version), the user's data folder, and our
programs."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import socket
import stat
import sys
import sysconfig
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ..errors import HubError
from ..wire import PROTOCOL
from ..wire.files import replace_file
from ..wire.runtime import Runtime

_MAX_SOCKET_PATH = 103
"""Bytes of a socket's path that every system accepts."""
_CONTROL_SOCKET = 30
"""Bytes that follow the folder in a path of ssh's sockets: a name of ours, and 17 that ssh adds for a moment."""


def data_folder() -> Path:
    """Return <jupyter data dir>/gpu-kernel, 0700: accepted host keys and records."""
    return _private_folder(Path(jupyter_data_dir()) / "gpu-kernel")


def hub_folder() -> Path:
    """Return the hub's folder, 0700, short enough for a socket's path. One per user, data folder and protocol."""
    return _own_folder(_usual_hub_folder())


def _usual_hub_folder() -> Path:
    if sys.platform == "win32":
        user = getpass.getuser()
    else:
        user = str(os.getuid())
    mark = hashlib.sha256(str(jupyter_data_dir()).encode()).hexdigest()[:8]
    name = f"jupyter-gpu-kernel-hub-{user}-{mark}-p{PROTOCOL}"
    bases = [Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()), Path(tempfile.gettempdir())]
    if sys.platform != "win32":  # where pipes are not files
        bases = [base for base in bases if len(os.fsencode(base / name / "hub")) <= _MAX_SOCKET_PATH] + [
            Path("/tmp")
        ]
    return next((base for base in bases if base.is_dir()), bases[-1]) / name


def hub_address() -> str:
    """Return the hub's address: a Unix socket, or a named pipe on Windows."""
    folder = hub_folder()
    if sys.platform == "win32":
        return rf"\\.\pipe\{folder.name}"
    return str(folder / "hub")


def control_folder() -> Path:
    """Return the folder for the sockets of ssh, 0700. It is in the hub's folder if their paths are not too long."""
    hub = hub_folder()
    folder = hub / "ssh"
    if sys.platform != "win32" and len(os.fsencode(folder)) + _CONTROL_SOCKET > _MAX_SOCKET_PATH:
        folder = Path("/tmp") / f"jgk-ssh-{hashlib.sha256(os.fsencode(hub)).hexdigest()[:12]}"
    return _own_folder(folder)


def sign_in_folder() -> Path:
    """Return the folder of requests to sign in, 0700: see `page_sign_in.py`."""
    return _own_folder(hub_folder() / "pages")


def installed_script(name: str) -> Path | None:
    """Return the program of this name: beside this Python, or where pip installs programs; None if it is at neither
    place."""
    file = f"{name}.exe" if sys.platform == "win32" else name
    user_scripts = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    folders = os.path.dirname(sys.executable), sysconfig.get_path("scripts"), user_scripts
    # On Windows, shutil.which would look into the current folder, too.
    return next((path for folder in folders if (path := Path(folder, file)).is_file()), None)


def hub_key() -> bytes:
    """Return the key by which clients and hub authenticate each other. Raises FileNotFoundError if no hub has run."""
    return hub_key_file().read_bytes()


def hub_key_file() -> Path:
    """Return the file of this key."""
    return hub_folder() / "key"


def make_hub_key(runtime: Runtime) -> bytes:
    """Write a new key, 0600, and return it. Only the hub does so, before it listens."""
    key = runtime.random.randbytes(32)
    replace_file(hub_key_file(), key)
    return key


def owner(runtime: Runtime) -> dict[str, str]:
    """Return {"owner": an id of this user's hub, "by": its readable name}, by which a keeper knows who has its kernel.

    Two hubs with one home folder must have different ids, or each would take a kernel back from the other repeatedly.
    """
    host = socket.gethostname()
    mark = hashlib.sha256(f"{_secret(runtime)}\n{_usual_hub_folder()}\n{host}".encode()).hexdigest()[:16]
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = "somebody"
    return {"owner": mark, "by": f"{user}@{host}"}


def _secret(runtime: Runtime) -> str:
    """Return a random text of this data folder, which never changes."""
    path = data_folder() / "owner"
    with contextlib.suppress(FileNotFoundError):
        if text := path.read_text():
            return text
    replace_file(path, runtime.random.randbytes(8).hex().encode())
    return path.read_text()


def trust_file() -> Path:
    """Return our own known_hosts file, with the host keys that the user accepted. The user's file is never written."""
    return data_folder() / "known_hosts"


def _own_folder(usual: Path) -> Path:
    """Return this folder, 0700. Where another user has taken its name in a shared folder: one with a random name, which
    a link in the data folder names, for this machine, as long as it exists."""
    mark = hashlib.sha256(os.fsencode(usual)).hexdigest()[:12]
    link = Path(jupyter_data_dir()) / "gpu-kernel" / f"folder-{mark}@{socket.gethostname()}"
    with contextlib.suppress(OSError):
        return _owned(Path(os.readlink(link)))
    try:
        return _private_folder(usual)
    except HubError as error:
        data_folder()
        with contextlib.suppress(OSError):
            link.unlink(missing_ok=True)  # what it named is gone
            new = tempfile.mkdtemp(prefix="jgk-", dir=usual.parent)
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.symlink(new, link)
            return _owned(Path(os.readlink(link)))
        raise error


def _owned(folder: Path) -> Path:
    """Return a folder that only this user can enter. Raises OSError for any other."""
    info = folder.lstat()
    if sys.platform != "win32" and (info.st_uid, info.st_mode) != (os.getuid(), stat.S_IFDIR | 0o700):
        raise PermissionError(f"{folder} is not this user's own")
    return folder


def _private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HubError(
            f"{folder} cannot be created: {error.strerror}",
            remedy="Free space or fix permissions, or set XDG_RUNTIME_DIR or JUPYTER_DATA_DIR to a folder of your own.",
        ) from error
    if sys.platform == "win32":
        return folder
    info = folder.lstat()
    if info.st_uid != os.getuid() or folder.is_symlink():
        raise HubError(
            f"{folder} belongs to another user, or is a symbolic link",
            remedy="Set XDG_RUNTIME_DIR (or TMPDIR) to a folder of your own.",
        )
    if info.st_mode & 0o077:
        folder.chmod(0o700)
    return folder
