"""Makes, describes and removes a virtual environment of ours on the work node: a program of its own.

It runs before there is an agent. The hub sends the files of this package as text to a Python of the node, 3.8 or newer,
which has the standard library only (`hub/virtual_env/node_script.py`). Arguments: a verb, and a request as JSON. The
answer is on stdout: "alive" and "step" while it works, "send" when the wheels are to be sent, then "answer" or
"problem".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any, Callable, Dict, List, NoReturn

from .create import create
from .output import Problem, say
from .plan import FULL, plan
from .removal import remove, status

VERBS: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
    "plan": plan,
    "create": create,
    "status": status,
    "remove": remove,
}


def main(arguments: List[str]) -> int:
    """Run a verb, and write its answer or the problem."""
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        kind, value = "answer", VERBS[arguments[0]](json.loads(arguments[1]))
    except Problem as problem:
        kind, value = "problem", {"code": problem.code, "text": str(problem)}
    except OSError as error:
        text = f"{error.filename or 'writing'}: {error.strerror or error}"
        kind, value = "problem", {"code": FULL.get(error.errno or 0, "write"), "text": text}
    with contextlib.suppress(OSError):  # the hub has left
        say(kind, value)
    return 0


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
