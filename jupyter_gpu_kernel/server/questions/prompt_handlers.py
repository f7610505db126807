"""The HTTP API of the questions to the user. Nothing here reads an answer again: it goes into the queue, and from there
to whoever asked."""

from __future__ import annotations

from typing import Any

from ..api import Handler, RequestRefused, route
from .prompts import LONGEST_ANSWER

EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1"
TITLE = "Questions of remote GPU kernels"


@route("GET", "prompts")
async def prompts(handler: Handler) -> list[dict[str, Any]]:
    """The questions that wait, in order: [{id, hop, kind, prompt, again, fingerprint, key_type, for, saveable}].

    The page shows the questions to the user. kind: password, passphrase, code, pin, text, or host, a new host key;
    `for`: {what, name, notebook}.
    """
    return handler.state.prompts.open()


@route("POST", "prompts/([0-9a-f]{32})")
async def answer_prompt(handler: Handler, number: str) -> dict[str, bool]:
    """Answer a question: {"answer": text, "save": bool}. To a new host key the answer is the end of its fingerprint."""
    if not handler.request.headers.get("Content-Type", "").startswith("application/json"):
        raise RequestRefused(415, "the answer must be JSON")  # no form of any page can send that
    body = handler.body("answer", "save")
    text, save = body.get("answer"), body.get("save", False)
    if not isinstance(text, str) or not isinstance(save, bool) or not _is_line(text):
        raise RequestRefused(400, 'expected {"answer": one line of text, "save": true or false}')
    handler.state.prompts.answer(number, text, save)
    return {"ok": True}


@route("DELETE", "prompts/([0-9a-f]{32})")
async def cancel_prompt(handler: Handler, number: str) -> dict[str, bool]:
    """Cancel a question."""
    handler.state.prompts.cancel(number)
    return {"ok": True}


def _is_line(text: str) -> bool:
    return len(text) <= LONGEST_ANSWER and not any(character in text for character in "\0\r\n")
