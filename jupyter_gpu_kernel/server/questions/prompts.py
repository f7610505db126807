"""The queue of questions to the user in the browser: what the hub asks while this server's calls connect.

A question leaves the queue when it is answered, cancelled or given up. Its answer goes to the thread that asked, once,
and cannot be read here. A question that no page fetches within `PAGE_TIMEOUT` has nobody to answer it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal

from ...errors import Cancelled, NotAnswered
from ...hub.rpc import ANSWER_TIMEOUT
from ...hub.ssh import Secret, matches_fingerprint
from ...saved_answers import SavedAnswers
from .page_queue import PageQueue

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


class Rejected(Exception):
    """The answer cannot be right, and the question stays."""


@dataclass(frozen=True)
class Reply:
    """What the user did: an answer, whether to store it; or they cancelled (`text` is None), or the call has ended."""

    text: str | None = field(repr=False)
    save: bool = False


@dataclass(frozen=True)
class _Question:
    shown: dict[str, Any]
    asker: PromptAsker
    fetched: threading.Event = field(default_factory=threading.Event)
    replies: queue.SimpleQueue[Reply] = field(default_factory=queue.SimpleQueue)


class Prompts(PageQueue[_Question]):
    """All questions of this server. They are asked on worker threads, and answered on the event loop."""

    def __init__(self, notify: Callable[[int], None], shown: bool = True) -> None:
        """`shown`: whether pages show questions; else each fails at once, with the command for a terminal."""
        super().__init__(notify)
        self._shown = shown
        self._numbers = itertools.count()
        self._cancelled: dict[Asking, int] = {}

    def asker(self, waiting: Asking) -> PromptAsker:
        """Return an Asker for one call: `async with prompts.asker(…) as ask: await client.acall(…, ask=ask)`."""
        return PromptAsker(self, waiting, next(self._numbers))

    # --- for pages

    def answer(self, number: str, text: str, save: bool) -> None:
        """Hand over the answer to a question. Raises KeyError if there is no such question (any more), or Rejected."""
        shown = self._entries[number].shown
        if shown["kind"] == "host" and not matches_fingerprint(text, shown["fingerprint"]):
            raise Rejected("The fingerprint does not end with that.")
        self._take(number).replies.put(Reply(text, save and shown["saveable"]))

    def cancel(self, number: str) -> None:
        """Give up a question, and those of all calls that wait already for the same. Raises KeyError."""
        same = _same(self._entries[number].asker.waiting)
        with self._lock:
            self._cancelled[same] = next(self._numbers)
        self._take(number).replies.put(Reply(None))

    # --- for askers

    def end(self, asker: PromptAsker) -> None:
        """The call of this asker has ended: this asker's questions leave the queue, and no more are taken."""
        with self._lock:
            asker.may_ask = False
            numbers = [number for number, one in self._entries.items() if one.asker is asker]
        for number in numbers:
            self._withdraw(number)

    def ask(self, asker: PromptAsker, question: dict[str, Any]) -> Reply:
        """Return the user's reply, from a worker thread. Raises NotAnswered if there is none."""
        hop, number = question["hop"], os.urandom(16).hex()
        if not self._shown:
            raise NotAnswered("asks for a password, a code or a confirmation", hop=hop)
        posted = _Question({"id": number, **question, "for": asdict(asker.waiting)}, asker)
        with self._lock:
            cancelled = self._cancelled.get(_same(asker.waiting), -1) > asker.number
            if cancelled or not asker.may_ask:
                raise _cancelled(asker.waiting, hop)
            if self._is_full:
                raise NotAnswered("too many questions wait for an answer", hop=hop)
            self._add(posted)
        try:
            return _reply(posted, hop)
        finally:
            self._withdraw(number)

    def _withdraw(self, number: str) -> None:
        """Forget a question for which nobody waits any more."""
        with contextlib.suppress(KeyError):  # it has left the queue already
            question = self._take(number)
            question.replies.put(Reply(None))
            question.fetched.set()


class PromptAsker:
    """An Asker for one call, whose questions leave the queue at its end."""

    def __init__(self, prompts: Prompts, waiting: Asking, number: int) -> None:
        self._prompts, self.waiting, self.number = prompts, waiting, number
        self.may_ask = True
        """Whether the call has not ended."""
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
            self._saved.store_later(secret, str(reply.text))
        return str(reply.text)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        """Return True: the user has typed a part of the fingerprint. Raises NotAnswered."""
        question = {"hop": hop, "kind": "host", "prompt": "", "again": False}
        more = {"fingerprint": fingerprint, "key_type": key_type, "saveable": False}
        return self._prompts.ask(self, {**question, **more}).text is not None


def _reply(question: _Question, hop: str) -> Reply:
    if not question.fetched.wait(PAGE_TIMEOUT):
        raise NotAnswered("asks for a password, a code or a confirmation, and nobody is there", hop=hop)
    try:
        reply = question.replies.get(timeout=ANSWER_TIMEOUT)
    except queue.Empty:
        raise NotAnswered("its question was not answered", hop=hop) from None
    if reply.text is None:
        raise _cancelled(question.asker.waiting, hop)
    return reply


def _same(waiting: Asking) -> Asking:
    """Return what all calls that ask the same questions have in common."""
    return Asking(waiting.what, waiting.name)


def _cancelled(waiting: Asking, hop: str) -> Cancelled:
    error = Cancelled(hop)
    if waiting.what != "probe":  # which is for no kernelspec yet
        error.fill_in("NAME", waiting.name)
    return error
