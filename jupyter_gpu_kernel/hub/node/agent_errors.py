"""Errors for what the agent of a node refuses or answers wrongly, with remedies of our own."""

from __future__ import annotations

from typing import Any

from ...errors import AgentError
from .. import validate

_REPORT = "Please report this, with the output of “jupyter gpu-kernel logs ID”."
_DRIVER = "Ask the node's administrator to look at the NVIDIA driver, or use --gpus 0 to run without a GPU."
_REMEDIES = {
    "taken": "Run a cell here to take it back.",
    "gone": "Start a new kernel; “jupyter gpu-kernel logs ID” shows what happened to the old one.",
    "protocol": "Use it with the version of jupyter-gpu-kernel that started it, or end it: "
    "“jupyter gpu-kernel stop ID”.",
    "hangs up": "“jupyter gpu-kernel logs ID” shows what happened; “jupyter gpu-kernel stop ID” ends it.",
    "unresponsive": "Try again in a minute. If that process is stopped on the node, continue it (kill -CONT) or "
    "kill it (kill -9): the kernel keeps running either way.",
    "keeper": "Check the node's Python with “jupyter gpu-kernel check NAME”.",
    "policy": "The site's rules are in /etc/jupyter-gpu-kernel/policy.json on the node.",
    "absent": "If no GPU is wanted, use --gpus 0. Otherwise add the folder of nvidia-smi to PATH (--setup).",
    "none": "In a job, ask the scheduler for GPUs. Otherwise use another node, or --gpus 0 to run without a GPU.",
    "few": "Ask for fewer (--gpus N), use another node, or ask the scheduler for more.",
    "hang": _DRIVER,
    "driver": _DRIVER,
    "malformed answer": "The agent on the node may be damaged or replaced: ask the node's administrator.",
    "malformed": _REPORT,
    "unknown": _REPORT,
    "fault": _REPORT,
    "large": "Ask for less at a time, for example for one cell.",
    "busy": "Try again in a moment.",
    "setup": "Run the kernelspec's set-up lines (--setup) by hand on the node and correct them.",
    "cwd": "Change --cwd in the kernelspec (jupyter gpu-kernel add … --replace).",
}

# Codes with a space are the hub's own: no node can send them.


class AgentRefusal(AgentError):
    """The agent refused a request; `code` is its reason in one word, such as "gone"."""

    def __init__(self, cause: str, *, code: str, hop: str, remedy: str) -> None:
        super().__init__(cause, hop=hop, remedy=remedy)
        self.code = code


def refusal(code: str, text: str, hop: str) -> AgentRefusal:
    """Return the error for a refusal. The remedy is ours, as no remedy comes from a node."""
    return AgentRefusal(text, code=code, hop=hop, remedy=_REMEDIES.get(code, ""))


def checked(do: str, answer: dict[str, Any], hop: str) -> dict[str, Any]:
    """Return the answer to the request `do` as plain data. Raise AgentRefusal if the agent refused the request, or if
    its answer is malformed."""
    if "error" in answer:
        raise refusal(**validate.refusal(answer["error"]), hop=hop)
    try:
        return validate.answer(do, answer)
    except validate.Malformed as error:
        raise refusal("malformed answer", f"the node's answer to “{do}” is malformed: {error}", hop) from None
