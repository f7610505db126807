"""The queue of questions to the user in the browser: what the hub asks while this server's calls connect.

A question leaves the queue when it is answered, cancelled or given up. Its answer goes to the thread that asked, once,
and cannot be read here. A question that no page fetches within `PAGE_TIMEOUT` has nobody to answer it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
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

PAGE_TIMEOUT = 10.0
"""Seconds for a page to fetch a question."""
MOST = 100
"""Questions that wait."""
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


@dataclass(frozen=True, eq=False)
class Question:
    """One question. shown: What pages get. fetched: Has a result when a page has got the question. reply: Has what the
    user answered; it is cancelled when the question is."""

    asker: PromptAsker
    shown: dict[str, Any]
    fetched: Future[None] = field(default_factory=Future)
    reply: Future[Reply] = field(default_factory=Future, repr=False)


class Prompts:
    """All questions of this server, in the order in which they came. They are asked on worker threads, and answered on
    the event loop."""

    def __init__(self, notify: Callable[[int], None], shown: bool = True) -> None:
        """`notify(number of questions)` is called when there are others. `shown`: whether pages show questions; else
        each fails at once, with the command for a terminal."""
        self._notify = notify
        self._shown = shown
        self._askers = WeakSet[PromptAsker]()
        self._questions: dict[str, Question] = {}
        self._lock = threading.RLock()

    def asker(self, waiting: Asking) -> PromptAsker:
        """Return an Asker for one call: `async with prompts.asker(…) as ask: await client.acall(…, ask=ask)`."""
        asker = PromptAsker(self, waiting)
        self._askers.add(asker)
        return asker

    # --- for pages

    def open(self) -> list[dict[str, Any]]:
        """Return the questions to a page that shows them."""
        with self._lock:
            questions = list(self._questions.values())
            for one in questions:
                if not one.fetched.done():
                    one.fetched.set_result(None)
        return [one.shown for one in questions]

    def answer(self, number: str, text: str, save: bool) -> None:
        """Hand over the answer to a question. Raises RequestRefused if there is no such question (any more), or if the
        answer cannot be right; then the question stays."""
        with self._lock:
            question = self._question(number)
            shown = question.shown
            if shown["kind"] == "host" and not matches_fingerprint(text, shown["fingerprint"]):
                raise RequestRefused(400, "The fingerprint does not end with that.")
            question.reply.set_result(Reply(text, save and shown["saveable"]))
            self._remove(question)

    def cancel(self, number: str) -> None:
        """Give up a question, and those of all calls that wait already for the same kernelspec. Raises
        RequestRefused."""
        with self._lock:
            question = self._question(number)
            cancelled = question.asker.waiting
            for asker in self._askers:
                if (asker.waiting.what, asker.waiting.name) == (cancelled.what, cancelled.name):
                    asker.may_ask = False
            self._remove(question)

    def _question(self, number: str) -> Question:
        try:
            return self._questions[number]
        except KeyError:
            raise RequestRefused(404, "this question does not wait for an answer any more") from None

    # --- for askers

    def end(self, asker: PromptAsker) -> None:
        """The call of this asker has ended: this asker's questions leave the queue, and no more are taken."""
        with self._lock:
            asker.may_ask = False
            for question in [one for one in self._questions.values() if one.asker is asker]:
                self._remove(question)

    def ask(self, asker: PromptAsker, question: dict[str, Any]) -> Reply:
        """Return the user's reply, from a worker thread. Raises NotAnswered if there is none."""
        hop, number = question["hop"], os.urandom(16).hex()
        if not self._shown:
            raise NotAnswered("asks for a password, a code or a confirmation", hop=hop)
        posted = Question(asker, {"id": number, **question, "for": asdict(asker.waiting)})
        with self._lock:
            if not asker.may_ask:
                raise _cancelled(asker.waiting, hop)
            if len(self._questions) >= MOST:
                raise NotAnswered("too many questions wait for an answer", hop=hop)
            self._questions[number] = posted
            self._notify(len(self._questions))
        try:
            return _reply(posted, hop)
        except CancelledError:  # by the user, or because the call has ended
            raise _cancelled(asker.waiting, hop) from None
        finally:
            with self._lock:
                self._remove(posted)

    def _remove(self, question: Question) -> None:
        """The question leaves the queue, if it is there, and is cancelled unless it was answered."""
        if self._questions.pop(question.shown["id"], None) is not None:
            self._notify(len(self._questions))
        question.fetched.cancel()
        question.reply.cancel()


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


def _reply(question: Question, hop: str) -> Reply:
    try:
        question.fetched.result(PAGE_TIMEOUT)
    except FutureTimeout:
        raise NotAnswered(
            "asks for a password, a code or a confirmation, and nobody is there", hop=hop
        ) from None
    try:
        return question.reply.result(ANSWER_TIMEOUT)
    except FutureTimeout:
        raise NotAnswered("its question was not answered", hop=hop) from None


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
