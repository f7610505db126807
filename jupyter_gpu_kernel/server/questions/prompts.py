"""The queue of questions to the user in the browser: what the hub asks while this server's calls connect.

A question leaves the queue when it is answered, cancelled or given up. Its answer goes to the thread that asked, once,
and cannot be read here. A question that no page fetches within `PAGE_TIMEOUT` has nobody to answer it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal
from weakref import WeakSet

from ...errors import Cancelled, NotAnswered
from ...hub.rpc import ANSWER_TIMEOUT
from ...hub.ssh import Secret, matches_fingerprint
from ...saved_answers import SavedAnswers
from ..api import Handler, RequestRefused, route
from .page_queue import PageEntry, PageQueue

PAGE_TIMEOUT = 10.0
"""Seconds for a page to fetch a question."""
LONGEST_PROMPT = 2000
LONGEST_ANSWER = 4096


@dataclass(frozen=True)
class Asking:
    """What waits for the answers: the start of a kernel, a sign-in or a probe, with the kernelspec and notebook."""

    what: Literal["kernel", "login", "probe"]
    name: str
    notebook: str = ""


@dataclass(frozen=True)
class Reply:
    """The user's answer, and whether to store it."""

    text: str = field(repr=False)
    save: bool = False


class Prompts(PageQueue):
    """All questions of this server. They are asked on worker threads, and answered on the event loop."""

    event = "https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1"
    title = "Questions of remote GPU kernels"
    gone = "this question does not wait for an answer any more"

    def __init__(self, notify: Callable[[int], None], shown: bool = True) -> None:
        """`shown`: whether pages show questions; else each fails at once, with the command for a terminal."""
        super().__init__(notify)
        self._shown = shown
        self._askers = WeakSet[PromptAsker]()

    def asker(self, waiting: Asking) -> PromptAsker:
        """Return an Asker for one call: `async with prompts.asker(…) as ask: await client.acall(…, ask=ask)`."""
        asker = PromptAsker(self, waiting)
        self._askers.add(asker)
        return asker

    # --- for pages

    def answer(self, number: str, text: str, save: bool) -> None:
        """Hand over the answer to a question. Raises RequestRefused if there is no such question (any more), or if the
        answer cannot be right; then the question stays."""
        shown = self._entry(number).shown
        if shown["kind"] == "host" and not matches_fingerprint(text, shown["fingerprint"]):
            raise RequestRefused(400, "The fingerprint does not end with that.")
        self._settle(number, Reply(text, save and shown["saveable"]))

    def cancel(self, number: str) -> None:
        """Give up a question, and those of all calls that wait already for the same kernelspec. Raises
        RequestRefused."""
        cancelled = self._entry(number).asker.waiting
        with self._lock:
            for asker in self._askers:
                if (asker.waiting.what, asker.waiting.name) == (cancelled.what, cancelled.name):
                    asker.may_ask = False
        self._take(number).reply.cancel()

    # --- for askers

    def end(self, asker: PromptAsker) -> None:
        """The call of this asker has ended: this asker's questions leave the queue, and no more are taken."""
        with self._lock:
            asker.may_ask = False
            entries = [one for one in self._entries.values() if one.asker is asker]
        for entry in entries:
            self._withdraw(entry)

    def ask(self, asker: PromptAsker, question: dict[str, Any]) -> Reply:
        """Return the user's reply, from a worker thread. Raises NotAnswered if there is none."""
        hop, number = question["hop"], os.urandom(16).hex()
        if not self._shown:
            raise NotAnswered("asks for a password, a code or a confirmation", hop=hop)
        posted = PageEntry({"id": number, **question, "for": asdict(asker.waiting)}, asker)
        with self._lock:
            if not asker.may_ask:
                raise _cancelled(asker.waiting, hop)
            if self._is_full:
                raise NotAnswered("too many questions wait for an answer", hop=hop)
            self._add(posted)
        try:
            return _reply(posted, hop)
        except CancelledError:  # by the user, or because the call has ended
            raise _cancelled(asker.waiting, hop) from None
        finally:
            self._withdraw(posted)


class PromptAsker:
    """An Asker for one call, whose questions leave the queue at its end."""

    def __init__(self, prompts: Prompts, waiting: Asking) -> None:
        self._prompts, self.waiting = prompts, waiting
        self.may_ask = True
        """Whether the call goes on: it has not ended, and the user has not cancelled a call for the same kernelspec."""
        self._saved = SavedAnswers(waiting.name if waiting.what != "probe" else "")

    async def __aenter__(self) -> PromptAsker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._prompts.end(self)
        await asyncio.to_thread(self._saved.settle, error)

    def secret(self, hop: str, prompt: str, secret: Secret) -> str:
        """Return the answer: the stored one, or what the user types. Raises NotAnswered."""
        stored = self._saved.stored(hop, secret)
        if stored is not None:
            return stored
        question = {"hop": hop, "kind": secret.kind, "prompt": prompt[:LONGEST_PROMPT], "again": secret.again}
        more = {"fingerprint": "", "key_type": "", "saveable": self._saved.can_store(secret)}
        reply = self._prompts.ask(self, {**question, **more})
        if reply.save:
            self._saved.store_later(secret, reply.text)
        return reply.text

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Return True: the user has typed a part of the fingerprint. Raises NotAnswered."""
        question = {"hop": hop, "kind": "host", "prompt": "", "again": False}
        more = {"fingerprint": fingerprint, "key_type": key_type, "saveable": False}
        self._prompts.ask(self, {**question, **more})
        return True


def _reply(question: PageEntry, hop: str) -> Reply:
    try:
        question.fetched.result(PAGE_TIMEOUT)
    except FutureTimeout:
        raise NotAnswered(
            "asks for a password, a code or a confirmation, and nobody is there", hop=hop
        ) from None
    try:
        reply: Reply = question.reply.result(ANSWER_TIMEOUT)
    except FutureTimeout:
        raise NotAnswered("its question was not answered", hop=hop) from None
    return reply


def _cancelled(waiting: Asking, hop: str) -> Cancelled:
    error = Cancelled(hop)
    if waiting.what != "probe":  # which is for no kernelspec yet
        error.fill_in("NAME", waiting.name)
    return error


# --- the HTTP API: nothing here reads an answer again


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
