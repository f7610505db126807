"""What the agent of a node refuses, or answers in a way that cannot be right: errors with our own remedies."""

from __future__ import annotations

from typing import Any

from ...errors import AgentError
from .. import validate

A_FAULT = "Please report this, with what “jupyter gpu-kernel logs ID” tells."
NO_DRIVER = "Ask the node's administrator to look at the NVIDIA driver, or use --gpus 0 to run without a GPU."


class AgentRefusal(AgentError):
    """The agent refused a request; `code` is its one word for why."""

    code = ""


def refusal(error: dict[str, str], hop: str) -> AgentRefusal:
    """{"code", "text"} as an error with our own remedy: none comes from a node. Codes with a space are the hub's own,
    which no node can send."""
    remedies = {
        "taken": "Run a cell here to take it back.",
        "gone": "Start a new kernel; “jupyter gpu-kernel logs ID” tells what happened to the old one.",
        "protocol": "Use it with the version of jupyter-gpu-kernel that started it, or end it: "
        "“jupyter gpu-kernel stop ID”.",
        "hangs up": "“jupyter gpu-kernel logs ID” tells what happened to it; “jupyter gpu-kernel stop ID” ends it.",
        "unresponsive": "Try again in a minute. If that process is stopped on the node, let it go on (kill -CONT) or "
        "kill it (kill -9): the kernel lives on either way.",
        "keeper": "Check the node's Python with “jupyter gpu-kernel check NAME”.",
        "policy": "The site's rules are in /etc/jupyter-gpu-kernel/policy.json on the node.",
        "absent": "If no GPU is wanted, use --gpus 0. Else put the folder of nvidia-smi on PATH (--setup).",
        "none": "In a job, ask the scheduler for GPUs. Else use another node, or --gpus 0 to run without a GPU.",
        "few": "Ask for fewer (--gpus N), use another node, or ask the scheduler for more.",
        "hang": NO_DRIVER,
        "driver": NO_DRIVER,
        "malformed answer": "Its agent may be broken, or somebody else's: ask the node's administrator.",
        "malformed": A_FAULT,
        "unknown": A_FAULT,
        "fault": A_FAULT,
        "large": "Ask for less at a time, such as one cell.",
        "busy": "Try again in a moment.",
        "setup": "Run the kernelspec's set-up lines (--setup) by hand on the node, and mend them there.",
        "cwd": "Change --cwd in the kernelspec (jupyter gpu-kernel add … --replace).",
    }
    refused = AgentRefusal(error["text"], hop=hop, remedy=remedies.get(error["code"], ""))
    refused.code = error["code"]
    return refused


def checked(do: str, answer: dict[str, Any], hop: str) -> dict[str, Any]:
    """The answer to the request `do`, as plain data. Refusal where the agent refused it, or the answer is malformed."""
    if "error" in answer:
        raise refusal(validate.refusal(answer["error"]), hop)
    try:
        return validate.answer(do, answer)
    except validate.Malformed as error:
        text = f"the node's answer to “{do}” is not what it should be: {error}"
        raise refusal({"code": "malformed answer", "text": text}, hop) from None
