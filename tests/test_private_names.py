"""Private names of libraries that the package uses: each still exists, and no other one is used.

A name that goes fails here, and not at a user's. `SEARCHED` are attributes that instances only have.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path

import pytest

import jupyter_gpu_kernel

PACKAGE = Path(jupyter_gpu_kernel.__file__).parent
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
OWN_OF_STDLIB = {"_exit", "_replace", "_asdict", "_fields", "_make", "_field_defaults"}
"""Private in their form only: they are documented."""


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


def defined_here(tree: ast.AST) -> set[str]:
    """The names that a module of the package defines, as attributes of its own objects too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"):
            names |= {node.attr} if isinstance(node.ctx, ast.Store) else set()
    return names


def test_no_other_private_name_of_a_library_is_used() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    known = OWN_OF_STDLIB.union(
        *map(defined_here, trees.values()), (name for _, name, _ in [*NAMES, *SEARCHED])
    )
    others = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.attr}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if node.attr not in known
    ]
    assert others == [], "list them above, with the reason and the upstream issue"
