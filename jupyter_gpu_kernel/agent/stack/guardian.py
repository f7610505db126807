"""The process `check ID`: runs the set-up lines and the probe of one check, and ends everything that they leave.

`attach` starts it for one request, and keeps its pipe open for as long as the answer is wanted. So nothing stays on the
node when the connection or `attach` ends. Nothing is written to a disk but the set-up lines, to a file without a name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from typing import Any, Dict, List, Optional

from ...wire.fields import FieldError, load_object
from ...wire.runtime import Runtime
from ..exit.descendants import ROOT, SETUP, TAG, end_all, find_descendants
from ..paths import Root, agent_command
from ..process_control import ProcessControl
from .supervision import Result, Supervisor, inherited_pipes, read_request, write_answer

SETUP_TIMEOUT = 60.0
PROBE_TIMEOUT = 240.0
"""Seconds for the search for a free GPU and one framework: an import over a cold NFS takes a minute."""
TIMEOUT = SETUP_TIMEOUT + PROBE_TIMEOUT
_LOG_TAIL = 2000


def run(runtime: Runtime, processes: ProcessControl, root: Root, check_id: str) -> int:
    """Serve the request of this process; return the exit code."""
    request_fd, answer_fd = inherited_pipes()
    data = read_request(request_fd)
    supervisor = Supervisor(runtime, processes, request_fd)
    try:
        settings = load_object(data)["settings"]
        result = _run_probe(supervisor, root, check_id, settings, data)
        answer = _answer(result, bool(settings.get("setup")))
    except (OSError, FieldError, KeyError) as error:
        answer = _refused("keeper", f"the check cannot be started: {error}")
    finally:
        for tag in (SETUP, TAG):
            end_all(runtime, processes, find_descendants(check_id, tag, str(root.path)))
    write_answer(answer_fd, answer)
    return 0


def _run_probe(
    supervisor: Supervisor, root: Root, check_id: str, settings: Dict[str, Any], request: bytes
) -> Result:
    """Run the probe as a keeper is run: with the kernel's Python, after the set-up lines in a login shell."""
    probe = [*agent_command(str(settings["python"])), "probe", check_id]
    env = {name: value for name, value in os.environ.items() if name != TAG}
    env.update({SETUP: check_id, ROOT: str(root.path)})
    cwd: Optional[str] = str(settings["cwd"])
    if not settings.get("setup"):
        del env[SETUP]
        return supervisor.run(probe, request, PROBE_TIMEOUT, env=env, cwd=cwd)
    lines: List[str] = [*map(str, settings["setup"]), f"unset {SETUP}", f"exec {shlex.join(probe)}", ""]
    with tempfile.TemporaryFile() as script:
        script.write("\n".join(lines).encode("utf-8", "surrogateescape"))
        script.flush()
        command = ["bash", "--login", f"/dev/fd/{script.fileno()}"]
        return supervisor.run(command, request, TIMEOUT, env=env, cwd=cwd, pass_fds=[script.fileno()])


def _answer(result: Result, has_setup: bool) -> bytes:
    """The probe's answer, or why there is none."""
    with contextlib.suppress(FieldError):
        if result.answer:
            load_object(result.answer)
            return result.answer
    what = "the set-up lines, or the check started after them," if has_setup else "the check"
    how = "did not end in time" if result.late else f"exited with status {result.status}"
    printed = _printable(result.output)
    text = f"{what} {how}" + (f"; they printed:\n{printed}" if printed else "")
    return _refused("setup" if has_setup else "keeper", text)


def _refused(code: str, text: str) -> bytes:
    return json.dumps({"refused": {"code": code, "text": text}}).encode()


def _printable(output: str) -> str:
    return "".join(one for one in output if one.isprintable() or one in "\n\t").strip()[-_LOG_TAIL:]
