"""Runs a program such as `nvidia-smi`, with a time limit.

When the driver hangs, each of these programs hangs, and some cannot be killed. Such a process is left behind, and no
other one is started beside it. This module does not know what the programs print.
"""

from __future__ import annotations

import os
import shutil
import threading
from typing import List, NamedTuple, Sequence

from ...system.agent_runtime import AgentRuntime, ChildProcess, Ended, Limit, run_programs
from .gpu import WITHOUT, SmiError

TIMEOUT = 15.0  # seconds; without nvidia's persistence mode the first call takes several
MAX_OUTPUT = 4 << 20  # bytes of one call


class SmiOutput(NamedTuple):
    """What a program has printed, and its exit status."""

    code: int
    text: str


class SmiRunner:
    """Runs one program, also several times at once. Not for use by several threads at a time."""

    def __init__(self, runtime: AgentRuntime, program: str, places: Sequence[str] = ()) -> None:
        """`program`: its name; `places`: the folders to search when it is not in PATH."""
        self._runtime = runtime
        self._program = program
        self._places = places
        self._stuck: List[ChildProcess] = []

    def run(self, calls: List[List[str]], deadline: float, stop: threading.Event) -> List[SmiOutput]:
        """Run the program with each of these lists of arguments, in parallel. Raises SmiError."""
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if self._stuck:  # not even SIGKILL ends it (state D); another one would hang, too
            raise self._hang(self._stuck[0].pid)
        program = find_program(self._program, self._places)
        if not program:
            raise self._absent()
        limit = Limit(deadline, stop.is_set, MAX_OUTPUT + 1)
        try:
            commands = [[program, *words] for words in calls]
            ended = run_programs(self._runtime, commands, limit)
        except OSError as error:
            raise SmiError("driver", f"{self._program} cannot be run: {error}", WITHOUT) from error
        self._stuck = [one.process for one in ended if one.process.poll() is None]
        return [self._result(one, stop) for one in ended]

    def _result(self, ended: Ended, stop: threading.Event) -> SmiOutput:
        """All of the output: where the end of a list of processes is missing, a GPU that is in use looks free."""
        if ended.status is None:
            raise SmiError("stopped", "reading the GPUs was cancelled") if stop.is_set() else self._hang()
        printed = ended.output + ended.errors
        if len(printed) > MAX_OUTPUT:
            raise SmiError("driver", f"{self._program} printed more than {MAX_OUTPUT >> 20} MiB", WITHOUT)
        return SmiOutput(ended.status, printed.decode("utf-8", "replace"))

    def _absent(self) -> SmiError:
        remedy = (
            f"If you need no GPU, use --gpus 0. If the node has GPUs, add the folder of {self._program} to PATH "
            "(--setup)."
        )
        return SmiError("absent", f"{self._program} was not found in this node's PATH", remedy)

    def _hang(self, pid: int = 0) -> SmiError:
        name = self._program
        cause = f"an earlier {name} (pid {pid}) still hangs" if pid else f"{name} does not answer"
        remedy = f"The driver or a GPU hangs. Ask an administrator for help: often only a reboot repairs it. {WITHOUT}"
        return SmiError("hang", cause, remedy)


def find_program(program: str, places: Sequence[str] = ()) -> str:
    """Return the path of this program, from PATH or one of these folders; "" if it is in none."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *places])
    return shutil.which(program, path=search) or ""
