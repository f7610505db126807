"""Fixtures every test may use; each lives in a file of its own."""

from __future__ import annotations

import os
import signal

from own_network import isolate

# A shell that starts the tests in the background has SIGINT ignored, and so have all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Kernels are started as programs, or with "wait" all are forked from spare interpreters: `make test-spare`.
if os.environ.setdefault("JUPYTER_GPU_KERNEL_SPARE", "off") != "off":
    os.environ.setdefault("JUPYTER_GPU_KERNEL_SPARE_IDLE", "2")

# A practice cluster is reached over the machine's network.
if "TESTBED_SSH_CONFIG" not in os.environ:
    isolate()

pytest_plugins = ["scheduling", "environments", "sshd", "ssh_server", "remote", "slurm"]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A test's name is in the environment of each process that it starts: what does not fit there gets a short one."""
    return f"{argname}-{len(val)}" if isinstance(val, (str, bytes)) and len(val) > 1000 else None
