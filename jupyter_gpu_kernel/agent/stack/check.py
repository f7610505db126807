"""The request `stack`, which is one part of `check --gpu`: the process `check ID`, and the function that starts it.

The process runs the set-up lines and `check-node ID`, and ends everything that they leave. `attach` starts it, and
keeps its pipe open for as long as the answer is wanted. So nothing stays on the node when the connection or `attach`
ends. Nothing is written to a disk but the set-up lines, to a file without a name.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any, Dict, List, Optional

from ...wire.fields import FieldError, load_object
from ...wire.runtime import Runtime
from ..exit.descendants import ROOT, SETUP, TAG, end_all, find_descendants
from ..gpus.sharing.lease import CHECK
from ..keeper.client import shown_end
from ..keeper.setup import shell_script
from ..paths import Root, agent_command
from ..process_control import ProcessControl
from .supervision import Result, Supervisor, inherited_pipes, read_request, write_answer

SETUP_TIMEOUT = 60.0
PART_TIMEOUT = 240.0
"""Seconds for the search for a free GPU and one framework: an import over a cold NFS takes a minute."""
TIMEOUT = SETUP_TIMEOUT + PART_TIMEOUT
_CLEANUP = 15.0
"""Seconds that ending the processes of a check may take."""


class CheckRefused(Exception):
    """The check could not be done; `code` is one word for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def check_stack(
    runtime: Runtime, processes: ProcessControl, root: Root, request: Dict[str, Any]
) -> Dict[str, Any]:
    """Return what the node found. Blocks for up to some minutes. Raises CheckRefused if it could not check.

    request: {"part": "node", or the name of a framework, "limit": seconds that a framework may take, "settings":
    {"python", "setup", "env", "cwd", "gpus"}}; the folder "cwd" exists.
    """
    check_id = CHECK + runtime.new_id()[:12]
    settings = dict(request["settings"], id=check_id)
    settings["python"] = str(settings.get("python") or sys.executable)
    wanted = {"part": request["part"], "limit": request.get("limit"), "settings": settings}
    data = json.dumps(wanted).encode() + b"\n"
    command = [*agent_command(sys.executable), "check", check_id]
    try:
        result = Supervisor(runtime, processes).run(
            command, data, TIMEOUT + _CLEANUP, env=dict(os.environ), cwd="/"
        )
        answer = load_object(result.answer)
    except OSError as error:
        raise CheckRefused("keeper", f"the check cannot be started: {error}") from None
    except FieldError:
        raise CheckRefused("keeper", result.output[-500:] or "the check ended without an answer") from None
    if "refused" in answer:
        raise CheckRefused(str(answer["refused"]["code"]), str(answer["refused"]["text"]))
    return answer


def run(runtime: Runtime, processes: ProcessControl, root: Root, check_id: str) -> int:
    """Serve the request of the process `check ID`; return the exit code."""
    request_fd, answer_fd = inherited_pipes()
    data = read_request(request_fd)
    supervisor = Supervisor(runtime, processes, request_fd)
    try:
        settings = load_object(data)["settings"]
        result = _check_node(supervisor, root, check_id, settings, data)
        answer = _answer(result, bool(settings.get("setup")))
    except (OSError, FieldError, KeyError) as error:
        answer = _refused("keeper", f"the check cannot be started: {error}")
    finally:
        for tag in (SETUP, TAG):
            end_all(runtime, processes, find_descendants(check_id, tag, str(root.path)))
    write_answer(answer_fd, answer)
    return 0


def _check_node(
    supervisor: Supervisor, root: Root, check_id: str, settings: Dict[str, Any], request: bytes
) -> Result:
    """Run `check-node` as a keeper is run: with the kernel's Python, after the set-up lines in a login shell."""
    command = [*agent_command(str(settings["python"])), "check-node", check_id]
    env = {name: value for name, value in os.environ.items() if name != TAG}
    env.update({SETUP: check_id, ROOT: str(root.path)})
    cwd: Optional[str] = str(settings["cwd"])
    if not settings.get("setup"):
        del env[SETUP]
        return supervisor.run(command, request, PART_TIMEOUT, env=env, cwd=cwd)
    lines: List[str] = list(map(str, settings["setup"]))
    with tempfile.TemporaryFile() as script:
        script.write(shell_script(lines, command).encode("utf-8", "surrogateescape"))
        script.flush()
        shell = ["bash", "--login", f"/dev/fd/{script.fileno()}"]
        return supervisor.run(shell, request, TIMEOUT, env=env, cwd=cwd, pass_fds=[script.fileno()])


def _answer(result: Result, has_setup: bool) -> bytes:
    """The answer of `check-node`, or why there is none."""
    with contextlib.suppress(FieldError):
        if result.answer:
            load_object(result.answer)
            return result.answer
    what = "the set-up lines, or the check started after them," if has_setup else "the check"
    how = "did not end in time" if result.late else f"exited with status {result.status}"
    printed = shown_end(result.output)
    text = f"{what} {how}" + (f"; they printed:\n{printed}" if printed else "")
    return _refused("setup" if has_setup else "keeper", text)


def _refused(code: str, text: str) -> bytes:
    return json.dumps({"refused": {"code": code, "text": text}}).encode()
