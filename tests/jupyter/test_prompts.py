"""Questions to the user in the browser: one queue, answered once, over the HTTP API of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403 (its fixtures)
from tornado.httpclient import HTTPClientError, HTTPResponse
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import Cancelled, NotAnswered
from jupyter_gpu_kernel.hub.ssh import Secret
from jupyter_gpu_kernel.server.api import STATE
from jupyter_gpu_kernel.server.questions import prompts as prompts_module
from jupyter_gpu_kernel.server.questions.prompts import Asking, PromptAsker, Prompts

Fetch = Callable[..., Awaitable[HTTPResponse]]
API = "/jupyter-gpu-kernel/api/prompts"
GPU2 = Asking("kernel", "gpu2", "work/train.ipynb")
PASSWORD = Secret("password", "alice@login:22")
FINGERPRINT = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


@pytest.fixture
def jp_nbconvert_templates() -> None:
    """None are needed."""


@pytest.fixture
def shown_in() -> str:
    return "page"


@pytest.fixture
def jp_server_config(shown_in: str) -> dict[str, Any]:
    server = {"jpserver_extensions": {"jupyter_gpu_kernel": True}}
    return {"ServerApp": server, "GpuKernelExtension": {"prompts": shown_in}}


EVENT = "https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1"


class Page:
    """A page: it is told of questions by events, fetches them, and answers."""

    def __init__(self, fetch: Fetch, server: Any) -> None:
        self._fetch = fetch
        self.prompts: Prompts = server.web_app.settings[STATE].prompts
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        server.event_logger.add_listener(schema_id=EVENT, listener=self._on_event)

    async def _on_event(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        await self.events.put(data)

    async def reported(self, waiting: int) -> list[dict[str, Any]]:
        """The questions once an event says that there are so many."""
        while (await asyncio.wait_for(self.events.get(), DEADLINE))["waiting"] != waiting:
            pass
        return await self.questions()

    async def questions(self) -> list[dict[str, Any]]:
        return list(json.loads((await self._fetch(API)).body))

    async def answer(self, number: str, body: Any, **headers: str) -> int:
        return await self._status(f"{API}/{number}", method="POST", body=json.dumps(body), headers=headers)

    async def cancel(self, number: str) -> int:
        return await self._status(f"{API}/{number}", method="DELETE")

    async def _status(self, path: str, **options: Any) -> int:
        options["headers"] = {"Content-Type": "application/json", **options.get("headers", {})}
        try:
            return (await self._fetch(path, **options)).code
        except HTTPClientError as error:
            return error.code


@pytest.fixture
def page(jp_fetch: Fetch, jp_serverapp: Any) -> Page:
    return Page(jp_fetch, jp_serverapp)


def secret(ask: PromptAsker, prompt: str, kind: Secret = PASSWORD) -> asyncio.Task[str]:
    return asyncio.create_task(asyncio.to_thread(ask.secret, "login", prompt, kind))


async def test_several_questions_are_one_queue_and_each_is_answered_once(page: Page) -> None:
    async with page.prompts.asker(GPU2) as ask:
        first = secret(ask, "Password of alice: ")
        await page.reported(1)
        second = secret(ask, "The server asks: “Code: ” ", Secret("code", again=True))
        one, two = await page.reported(2)
        assert one == {
            "id": one["id"],
            "hop": "login",
            "kind": "password",
            "prompt": "Password of alice: ",
            "again": False,
            "fingerprint": "",
            "key_type": "",
            "saveable": False,
            "for": {"what": "kernel", "name": "gpu2", "notebook": "work/train.ipynb"},
        }
        assert (two["kind"], two["again"]) == ("code", True) and len(one["id"]) == 32
        assert await page.answer(two["id"], {"answer": "123456"}) == 200
        assert await second == "123456"
        assert [left["id"] for left in await page.reported(1)] == [one["id"]]
        assert await page.answer(one["id"], {"answer": "sesame", "save": False}) == 200
        assert await first == "sesame"
        assert await page.reported(0) == []
        assert await page.answer(one["id"], {"answer": "other"}) == 404
        assert await page.cancel(one["id"]) == 404
        assert await page.answer("0" * 32, {"answer": "x"}) == 404


async def test_a_new_host_key_is_accepted_by_typing_the_end_of_its_fingerprint(page: Page) -> None:
    async with page.prompts.asker(GPU2) as ask:
        asked = asyncio.create_task(asyncio.to_thread(ask.confirm_host, "login", FINGERPRINT, "ssh-ed25519"))
        (one,) = await page.reported(1)
        assert (one["kind"], one["fingerprint"], one["key_type"]) == ("host", FINGERPRINT, "ssh-ed25519")
        for wrong in ("", "yes", "uFU", "SuFu", "true"):
            assert await page.answer(one["id"], {"answer": wrong}) == 400
        assert await page.answer(one["id"], {"answer": "SuFU"}) == 200
        assert await asked is True


async def test_nonsense_is_no_answer(page: Page) -> None:
    async with page.prompts.asker(GPU2) as ask:
        asked = secret(ask, "Password of alice: ")
        (one,) = await page.reported(1)
        nonsense = [None, [], {}, {"answer": 1}, {"answer": "a\nb"}, {"answer": "a" * 5000}, "sesame"]
        for body in [*nonsense, {"answer": "sesame", "save": "yes"}]:
            assert await page.answer(one["id"], body) == 400
        for form in ("text/plain", "application/x-www-form-urlencoded"):
            assert await page.answer(one["id"], {"answer": "sesame"}, **{"Content-Type": form}) == 415
        assert await page.questions() == [one]
        assert await page.answer(one["id"], {"answer": ""}) == 200
        assert await asked == ""


async def test_cancelled_once_is_cancelled_for_all_that_wait_for_the_same(page: Page) -> None:
    """Two kernels of a node start at once: the second one waits for the connection of the first."""
    asker = page.prompts.asker
    same, others = Asking("kernel", "gpu2", "b.ipynb"), Asking("kernel", "gpu3")
    async with asker(GPU2) as ask, asker(same) as too, asker(others) as other:
        asked = secret(ask, "Password of alice: ")
        (one,) = await page.reported(1)
        assert await page.cancel(one["id"]) == 200
        with pytest.raises(Cancelled, match=r"login: you cancelled.*\nTo be asked again, .* login gpu2"):
            await asked
        with pytest.raises(Cancelled):
            await secret(too, "Password of alice: ")
        asked = secret(other, "Password of alice: ")
        (one,) = await page.reported(1)
        assert await page.answer(one["id"], {"answer": "sesame"}) == 200
        assert await asked == "sesame"
    async with asker(GPU2) as again:
        asked = secret(again, "Password of alice: ")
        (one,) = await page.reported(1)
        assert await page.answer(one["id"], {"answer": "sesame"}) == 200
        assert await asked == "sesame"


async def test_a_call_that_ends_takes_its_questions_along(page: Page) -> None:
    async with page.prompts.asker(GPU2) as ask:
        asked = secret(ask, "Password of alice: ")
        (one,) = await page.reported(1)
    with pytest.raises(Cancelled):
        await asked
    assert await page.reported(0) == []
    assert await page.answer(one["id"], {"answer": "sesame"}) == 404
    with pytest.raises(Cancelled):
        ask.secret("login", "Password of alice: ", PASSWORD)


async def test_a_call_that_ends_while_its_threads_ask_leaves_no_question(page: Page) -> None:
    for _ in range(20):
        async with page.prompts.asker(GPU2) as ask:
            asked = [secret(ask, "Password of alice: ") for _ in range(4)]
            await asyncio.sleep(0)
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), DEADLINE)
        assert [type(one) for one in answers] == [Cancelled] * 4
        assert await page.questions() == []


async def test_the_questions_of_other_calls_stay(page: Page) -> None:
    async with page.prompts.asker(Asking("login", "gpu3")) as other:
        asked = secret(other, "Code: ", Secret("code"))
        (one,) = await page.reported(1)
        async with page.prompts.asker(GPU2) as ask:
            ended = secret(ask, "Password of alice: ")
            await page.reported(2)
        assert await page.reported(1) == [one]
        assert await page.answer(one["id"], {"answer": "123456"}) == 200
        assert await asked == "123456"
    with pytest.raises(Cancelled):
        await ended


async def test_the_queue_and_its_texts_are_bounded(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, "MOST", 1)
    async with page.prompts.asker(GPU2) as ask:
        asked = secret(ask, "x" * 10_000)
        (one,) = await page.reported(1)
        assert len(one["prompt"]) == prompts_module.LONGEST_PROMPT
        with pytest.raises(NotAnswered, match="too many questions"):
            await secret(ask, "Code: ", Secret("code"))
        assert await page.questions() == [one]
        assert await page.answer(one["id"], {"answer": "sesame"}) == 200
        assert await asked == "sesame"


async def test_without_a_page_nobody_is_there(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, "PAGE_TIMEOUT", 0.01)
    async with page.prompts.asker(GPU2) as ask:
        with pytest.raises(NotAnswered, match=r"nobody is there\n.*jupyter gpu-kernel login NAME") as caught:
            await secret(ask, "Password of alice: ")
    assert caught.value.login and await page.questions() == []


@pytest.mark.parametrize("shown_in", ["terminal"])
async def test_no_page_gets_a_question_if_they_are_answered_in_a_terminal_only(
    page: Page, jp_serverapp: Any
) -> None:
    assert jp_serverapp.web_app.settings["page_config_data"]["gpuKernelPrompts"] == "terminal"
    async with page.prompts.asker(GPU2) as ask:
        with pytest.raises(NotAnswered, match=r"jupyter gpu-kernel login NAME") as caught:
            await secret(ask, "Password of alice: ")
        with pytest.raises(NotAnswered):
            await asyncio.to_thread(ask.confirm_host, "login", FINGERPRINT, "ssh-ed25519")
    assert caught.value.login and await page.questions() == [] and page.events.empty()


async def test_an_unanswered_question_is_given_up(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_module, "ANSWER_TIMEOUT", 0.01)
    async with page.prompts.asker(GPU2) as ask:
        asked = secret(ask, "Password of alice: ")
        await page.reported(1)
        with pytest.raises(NotAnswered, match="was not answered"):
            await asked
    assert await page.questions() == []
