"""A network namespace for this process that runs tests: abstract sockets belong to it.

Leases of GPUs, and the queue of those that wait, are abstract sockets. Two runs on one machine would see each other's,
and so would the workers of pytest-xdist. Workers have a namespace each only if root runs the tests; otherwise they
share that of their run. Where the system makes no namespace, the tests go on without.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SUCCEEDED = "TESTS_HAVE_OWN_NETWORK"  # for the workers, which inherit the environment
_SET_ADDRESS, _SET_FLAGS, _UP_AND_RUNNING = 0x8916, 0x8914, 0x1 | 0x40


def isolate() -> None:
    """Move this process, and all that it starts from now on, into a namespace with a loopback device only."""
    if not sys.platform.startswith("linux"):
        return
    if "PYTEST_XDIST_WORKER" in os.environ:  # it has threads: it can neither fork nor make a user namespace
        if os.environ.get(_SUCCEEDED) and os.geteuid() == 0:
            _enter()
        return
    trial = os.fork()  # a user namespace cannot be left again
    if trial == 0:
        try:
            _enter()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(trial, 0)[1] == 0:
        _enter()
        os.environ[_SUCCEEDED] = "1"


def _enter() -> None:
    import fcntl  # which Windows lacks

    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK if uid == 0 else _NEW_USER | _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:  # the same ids as before
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
        # Slurm resolves even 127.0.0.1 only where there is another address, too.
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
        fcntl.ioctl(sock, _SET_ADDRESS, address)
