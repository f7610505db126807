"""The agent's subcommands and its exit codes, which the local side turns into advice.

    attach | job | setup ID | serve ID | succeed ID | spare KEY FILLER | ipykernel ARGUMENTS

The agent runs from a folder in its own one. In a checkout, JUPYTER_GPU_KERNEL_ROOT names the folder.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import List

from ..wire.runtime import Runtime
from .keeper.client import receive_request
from .paths import FolderError, Root, agent_folder
from .system.agent_runtime import AgentRuntime
from .system.process_control import detach

USAGE = 2
NO_ZMQ = 92
BAD_FOLDER = 93
_COMMANDS = """usage: agent attach | job | setup ID | serve ID | succeed ID | spare KEY FILLER | ipykernel ARGUMENTS
"""


def main(argv: List[str]) -> int:
    """Run a subcommand; return the exit code."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command == "ipykernel":
        from .in_kernel.main import main as run_kernel

        run_kernel(rest)
        return 0
    try:
        return _run(Root(_root()), command, rest)
    except FolderError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_FOLDER


def _run(root: Root, command: str, rest: List[str]) -> int:
    """Run a subcommand that needs the agent's folder."""
    if command == "attach":
        from .mux.attach import main as run_attach

        return run_attach(AgentRuntime(), root)
    if command == "job" and not rest:
        return _run_job(root)
    if command == "setup" and len(rest) == 1:
        return _run_setup(root, rest[0])
    if command == "serve" and len(rest) == 1:
        return _serve(root, rest[0])
    if command == "succeed" and len(rest) == 1:
        from .failover.successor import run as run_successor

        return run_successor(root, rest[0])
    if command == "spare" and len(rest) == 2:
        from .spare.server import run as run_spare

        return run_spare(Runtime(), root.path, rest[0])
    sys.stderr.write(_COMMANDS)
    return USAGE


def _root() -> Path:
    folder = agent_folder()
    return folder.parent if folder else Path(os.environ["JUPYTER_GPU_KERNEL_ROOT"])


def _run_job(root: Root) -> int:
    """Be the process of the scheduler's job of our batch script, until it is over."""
    from .job.process import run as run_job
    from .job.signals import block

    block()
    return run_job(AgentRuntime(), root)


def _run_setup(root: Root, kernel_id: str) -> int:
    """Run the user's set-up lines, then the keeper; return once it serves."""
    from .keeper.setup import run_setup

    run_setup(AgentRuntime(), root, kernel_id, receive_request(root.kernel(kernel_id)))
    return 0


def _serve(root: Root, kernel_id: str) -> int:
    """Start the keeper as a daemon, which reports to its starter that it serves, or its error."""
    packages = {"zmq": "pyzmq", "ipykernel": "ipykernel"}
    lacking = [package for module, package in packages.items() if importlib.util.find_spec(module) is None]
    if lacking:
        lacks, install = " and ".join(lacking), " ".join(lacking)
        sys.stderr.write(f"{sys.executable} lacks {lacks}: run {sys.executable} -m pip install {install}\n")
        return NO_ZMQ
    from .job.signals import unblock

    unblock()  # what our parent has blocked, if that is a job's process
    request = receive_request(root.kernel(kernel_id))

    def keep() -> None:
        from .keeper.keeper import Keeper
        from .keeper.system import KeeperSystem
        from .policy import read_policy

        try:
            keeper = Keeper(KeeperSystem(AgentRuntime()), root, request.settings, read_policy())
        except Exception as error:
            return request.failed(f"{type(error).__name__}: {error}")
        request.succeeded()
        keeper.run()

    detach(keep, root.kernel(kernel_id) / "log")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
