"""Private names of libraries that the package uses: each still exists. checks/test_names.py finds others.

A name that goes fails here, and not at a user's. `SEARCHED` are attributes that instances only have.
"""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

GROUP = "argparse names no public class for a group of options, which annotations need"
BUILT_IN_HASHES = "a launcher takes Python's own hash functions, since OpenSSL's library needs 3.4 MiB"
FORKED = "ipykernel has no public way to receive the output of forked children but a TCP port"
SPAWN = "a program that a kernel starts must not inherit that SIGTERM is blocked; Python has no hook for that"
NAMES = [
    ("paramiko:Transport", "_channel_handler_table", "the practice cluster acts after a reply was sent"),
    ("paramiko:Channel", "_handle_request", "the practice cluster acts after a reply was sent"),
    ("jupyter_client:MultiKernelManager", "_pending_kernels", "docs/upstream/pending-kernels.md"),
    (
        "ipykernel.kernelapp:IPKernelApp",
        "_bind_socket",
        "the limit of messages that wait must be set before binding",
    ),
    ("ipykernel.iostream:IOPubThread", "_setup_pipe_in", FORKED),
    ("ipykernel.iostream:IOPubThread", "_setup_pipe_out", FORKED),
    ("ipykernel.iostream:IOPubThread", "_handle_pipe_msg", FORKED),
    (
        "ipykernel.iostream:IOPubThread",
        "_really_send",
        "output must be counted when it is sent, on iopub's thread",
    ),
    (
        "ipykernel.kernelbase:Kernel",
        "_input_request",
        "a question is sent again to the successor of a killed keeper",
    ),
    (
        "ipykernel.debugger",
        "_is_debugpy_available",
        "debugpy opens TCP ports to which other users can connect",
    ),
    ("logging", "_handlerList", "handlers that modules made before the first cell must write to cells"),
    ("subprocess", "_fork_exec", SPAWN),
    ("_posixsubprocess", "fork_exec", SPAWN),
    ("multiprocessing.resource_tracker", "_IGNORED_SIGNALS", SPAWN),
    ("sys", "_base_executable", "the Python from which an environment was made"),
    ("hashlib", "_hashlib", BUILT_IN_HASHES),
    ("argparse", "_ArgumentGroup", GROUP),
    ("argparse", "_MutuallyExclusiveGroup", GROUP),
]
SEARCHED = [
    ("ipykernel.iostream:IOPubThread", "_pipe_in", FORKED),
    ("ipykernel.iostream:IOPubThread", "_pipe_uuid", FORKED),
    (
        "ipykernel.iostream:OutStream",
        "_original_stdstream_copy",
        "what child processes print would be written twice",
    ),
    ("paramiko.packet:Packetizer", "_closed", "paramiko asks the socket that we give it for this name"),
]


def loaded(where: str) -> object:
    module, _, name = where.partition(":")
    if module == "_posixsubprocess" and sys.platform == "win32":
        pytest.skip("a module of POSIX systems")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


@pytest.mark.parametrize(("where", "name", "reason"), NAMES)
def test_a_private_name_still_exists(where: str, name: str, reason: str) -> None:
    if name == "_fork_exec" and (sys.version_info < (3, 11) or sys.platform == "win32"):
        pytest.skip("not imported by this name")
    assert hasattr(loaded(where), name), f"needed because: {reason}"


@pytest.mark.parametrize(("where", "name", "reason"), SEARCHED)
def test_instances_still_have_a_private_name(where: str, name: str, reason: str) -> None:
    assert name in inspect.getsource(loaded(where)), f"needed because: {reason}"  # type: ignore[arg-type]
