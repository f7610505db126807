"""The HTTP API of the questions to the user. Nothing here reads an answer again: it goes into the queue, and from there
to whoever asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..api import API, Handler, RequestRefused, permitted
from .prompts import LONGEST_ANSWER, Rejected

EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1"
TITLE = "Questions of remote GPU kernels"


class PromptsHandler(Handler):
    """The questions that wait, in order: [{id, hop, kind, prompt, again, fingerprint, key_type, for, saveable}].

    kind: password, passphrase, code, pin, text, or host, a new host key; `for`: {what, name, notebook}.
    """

    @permitted("execute")
    async def get(self) -> None:
        """Return them to a page that shows them to the user."""
        await self.answer(self.state.prompts.open())


class PromptHandler(Handler):
    """One question."""

    @permitted("execute")
    async def post(self, number: str) -> None:
        """Answer it: {"answer": text, "save": bool}. To a new host key the answer is the end of its fingerprint."""
        if not self.request.headers.get("Content-Type", "").startswith("application/json"):
            raise RequestRefused(415, "the answer must be JSON")  # no form of any page can send that
        body = self.body("answer", "save")
        text, save = body.get("answer"), body.get("save", False)
        if not isinstance(text, str) or not isinstance(save, bool) or not _is_line(text):
            raise RequestRefused(400, 'expected {"answer": one line of text, "save": true or false}')
        with _waiting():
            self.state.prompts.answer(number, text, save)
        await self.answer({"ok": True})

    @permitted("execute")
    async def delete(self, number: str) -> None:
        """Cancel it."""
        with _waiting():
            self.state.prompts.cancel(number)
        await self.answer({"ok": True})


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    """Refuse the request if its question does not wait any more, or if the answer cannot be right."""
    try:
        yield
    except KeyError:
        raise RequestRefused(404, "this question does not wait for an answer any more") from None
    except Rejected as error:
        raise RequestRefused(400, str(error)) from None


def _is_line(text: str) -> bool:
    return len(text) <= LONGEST_ANSWER and not any(character in text for character in "\0\r\n")


HANDLERS = [(API + "/prompts", PromptsHandler), (API + "/prompts/([0-9a-f]{32})", PromptHandler)]
