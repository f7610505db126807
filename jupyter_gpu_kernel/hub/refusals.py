"""What the agent of a node refuses, as errors with our own remedies."""

from __future__ import annotations

from typing import Any

from ..errors import AgentError


class Refusal(AgentError):
    """The agent refused a request; `code` is its one word for why."""

    code = ""


def refusal(error: dict[str, Any], hop: str) -> Refusal:
    """The agent's {"code", "text"} as an error with a remedy."""
    code, text = str(error.get("code")), str(error.get("text"))
    remedies = {
        "taken": "Run a cell here to take it back.",
        "gone": "Start a new kernel; “jupyter gpu-kernel logs ID” tells what happened to the old one.",
        "protocol": "Use it with the version of jupyter-gpu-kernel that started it, or end it: "
        "“jupyter gpu-kernel stop ID”.",
        "hangs up": "“jupyter gpu-kernel logs ID” tells what happened to it; “jupyter gpu-kernel stop ID” ends it.",
        "unresponsive": "Try again in a minute. If that process is stopped on the node, let it go on (kill -CONT) or "
        "kill it (kill -9): the kernel lives on either way.",
        "keeper": "Check the node's Python with “jupyter gpu-kernel check NAME”.",
        "cwd": "Change --cwd in the kernelspec (jupyter gpu-kernel add … --replace).",
    }
    refused = Refusal(text, hop=hop, remedy=str(error.get("remedy") or remedies.get(code, "")))
    refused.code = code
    return refused
