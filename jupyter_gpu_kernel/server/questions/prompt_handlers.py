"""The HTTP API of the questions to the user, and the event that tells pages to fetch them. Nothing here reads an answer
again: it goes into the queue, and from there to whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..api import API, Handler, permitted
from .prompts import LONGEST_ANSWER, Prompts, Rejected

PROMPTS = "jupyter_gpu_kernel_prompts"
"""The key of the queue in the server's settings."""
EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1"


def schema(event: str, title: str, description: str) -> dict[str, Any]:
    """Return the schema of an event that tells how many questions, or the like, there are."""
    count = {"type": "integer", "title": "Count", "description": "How many there are."}
    return {
        "$id": event,
        "version": "1",
        "title": title,
        "description": description,
        "type": "object",
        "required": ["waiting"],
        "properties": {"waiting": count},
    }


SCHEMA = schema(
    EVENT,
    "Questions of remote GPU kernels",
    "Other questions than before wait for the user. Pages fetch them.",
)


def notifier(server: Any, schema: dict[str, Any]) -> Callable[[int], None]:
    """Return what tells all pages of this server, from any thread, how many questions, or the like, there are."""
    server.event_logger.register_event_schema(schema)

    def emit(waiting: int) -> None:
        server.event_logger.emit(schema_id=schema["$id"], data={"waiting": waiting})

    return lambda waiting: server.io_loop.add_callback(emit, waiting)


class PromptsHandler(Handler):
    """The questions that wait, in order: [{id, hop, kind, prompt, again, fingerprint, key_type, for, saveable}].

    kind: password, passphrase, code, pin, text, or host, a new host key; `for`: {what, name, notebook}.
    """

    @permitted("execute")
    async def get(self) -> None:
        """Return them to a page that shows them to the user."""
        prompts: Prompts = self.settings[PROMPTS]
        await self.answer(prompts.open())


class PromptHandler(Handler):
    """One question."""

    @permitted("execute")
    async def post(self, number: str) -> None:
        """Answer it: {"answer": text, "save": bool}. To a new host key the answer is the end of its fingerprint."""
        if not self.request.headers.get("Content-Type", "").startswith("application/json"):
            return await self.refuse(415, "the answer must be JSON")  # no form of any page can send that
        body = self.get_json_body() or {}
        text, save = (body.get("answer"), body.get("save", False)) if isinstance(body, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(save, bool) or not _is_line(text):
            return await self.refuse(400, 'expected {"answer": one line of text, "save": true or false}')
        prompts: Prompts = self.settings[PROMPTS]
        try:
            prompts.answer(number, text, save)
        except KeyError:
            return await self._is_gone()
        except Rejected as error:
            return await self.refuse(400, str(error))
        await self.answer({"ok": True})

    @permitted("execute")
    async def delete(self, number: str) -> None:
        """Cancel it."""
        prompts: Prompts = self.settings[PROMPTS]
        try:
            prompts.cancel(number)
        except KeyError:
            return await self._is_gone()
        await self.answer({"ok": True})

    async def _is_gone(self) -> None:
        await self.refuse(404, "this question does not wait for an answer any more")


def _is_line(text: str) -> bool:
    return len(text) <= LONGEST_ANSWER and not any(character in text for character in "\0\r\n")


HANDLERS = [(API + "/prompts", PromptsHandler), (API + "/prompts/([0-9a-f]{32})", PromptHandler)]
