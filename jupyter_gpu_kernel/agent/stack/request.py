"""Serves the hub's request `stack` in `attach`: starts the process that checks, and waits for its answer."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from ...wire.fields import FieldError, load_object
from ...wire.runtime import Runtime
from ..gpus.sharing.lease import CHECK
from ..paths import Root, agent_command
from ..process_control import ProcessControl
from .guardian import TIMEOUT
from .supervision import Supervisor

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
    """Return what the probe found. Blocks for up to some minutes. Raises CheckRefused if it could not look.

    request: {"look": "node", or the name of a framework, "limit": seconds that a framework may take, "settings":
    {"python", "setup", "env", "cwd", "gpus"}}; the folder "cwd" exists.
    """
    check_id = CHECK + runtime.new_id()[:12]
    settings = dict(request["settings"], id=check_id)
    settings["python"] = str(settings.get("python") or sys.executable)
    wanted = {"look": request["look"], "limit": request.get("limit"), "settings": settings}
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
