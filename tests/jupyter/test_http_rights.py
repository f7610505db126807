"""Who may ask our HTTP API what, and that nonsense gets a refusal. No hub is there, and none may be started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jupyter_server.auth import Authorizer
from pytest_jupyter.jupyter_server import *  # noqa: F403 (its fixtures)
from tornado.httpclient import HTTPClientError, HTTPResponse

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import HubError

Fetch = Callable[..., Awaitable[HTTPResponse]]
API = "/jupyter-gpu-kernel/api"
PATHS = [f"{API}/kernels", f"{API}/nodes", f"{API}/kernels/k1/journal", f"{API}/overview"]
QUESTION, PROBE = f"{API}/prompts/{'0' * 32}", f"{API}/probes/{'0' * 32}"
# Read with the right to execute, and what those get who may.
SECRETS = {
    f"{API}/kernels/k1/story": 404,
    f"{API}/prompts": 200,
    f"{API}/ssh-hosts": 200,
    f"{API}/kernelspecs": 200,
    PROBE: 404,
}
ACTIONS = ("interrupt", "restart", "stop", "attach", "priority")
# Of what is not there, or with a body that is wrong; and what those get who may.
CHANGES = {
    ("POST", f"{API}/nodes/nowhere/login"): 404,
    **{("POST", f"{API}/kernels/k1/{action}"): 400 for action in ACTIONS},
    ("POST", QUESTION): 404,
    ("DELETE", QUESTION): 404,
    ("POST", f"{API}/probes"): 400,
    ("DELETE", PROBE): 404,
    ("POST", f"{API}/kernelspecs"): 400,
    ("DELETE", f"{API}/kernelspecs/none"): 404,
}


class ReadOnly(Authorizer):
    """As for somebody with whom a server is shared: may look, may not execute."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return (action, resource) == ("read", "kernels")


@pytest.fixture
def jp_nbconvert_templates() -> None:
    """None are needed."""


@pytest.fixture
def authorizer() -> type[Authorizer] | None:
    return None


@pytest.fixture
def jp_server_config(authorizer: type[Authorizer] | None) -> dict[str, Any]:
    server: dict[str, Any] = {"jpserver_extensions": {"jupyter_gpu_kernel": True}}
    return {"ServerApp": server | ({"authorizer_class": authorizer} if authorizer else {})}


@pytest.fixture(autouse=True)
def no_hub(jp_environ: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield
    with pytest.raises(HubError):
        HubClient(start=False)


async def status(fetching: Awaitable[HTTPResponse]) -> int:
    try:
        return (await fetching).code
    except HTTPClientError as error:
        return error.code


def change(
    fetch: Fetch, method: str, path: str, raise_error: bool = True, **headers: str
) -> Awaitable[HTTPResponse]:
    body = None if method == "DELETE" else '{"answer": "x"}'
    headers["Content-Type"] = "application/json"
    return fetch(path, method=method, body=body, headers=headers, raise_error=raise_error)


async def owners_cookies(app: Any, client: Any) -> tuple[str, str]:
    """The owner's cookies, and the XSRF token among them."""
    home = await client.fetch(f"{app.base_url}tree?token={app.identity_provider.token}", raise_error=False)
    pairs = [cookie.partition(";")[0] for cookie in home.headers.get_list("Set-Cookie")]
    token = next(pair.partition("=")[2] for pair in pairs if pair.startswith("_xsrf="))
    return "; ".join(pairs), token


async def test_an_owner_may_ask_everything(jp_fetch: Fetch) -> None:
    assert [await status(jp_fetch(path)) for path in PATHS] == [200, 200, 404, 200]


@pytest.mark.parametrize("authorizer", [ReadOnly])
async def test_what_asks_nodes_needs_the_right_to_execute(jp_fetch: Fetch) -> None:
    assert [await status(jp_fetch(path)) for path in PATHS] == [200, 200, 403, 403]


@pytest.mark.parametrize("authorizer", [ReadOnly])
async def test_questions_and_changes_need_the_right_to_execute(jp_fetch: Fetch) -> None:
    assert [await status(jp_fetch(path)) for path in SECRETS] == [403] * len(SECRETS)
    assert [await status(change(jp_fetch, *each)) for each in CHANGES] == [403] * len(CHANGES)


async def test_an_owner_may_change(jp_fetch: Fetch) -> None:
    assert {path: await status(jp_fetch(path)) for path in SECRETS} == SECRETS
    assert {each: await status(change(jp_fetch, *each)) for each in CHANGES} == CHANGES


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_stranger_may_change_nothing(jp_fetch: Fetch, method: str, path: str) -> None:
    assert await status(change(jp_fetch, method, path, Authorization="token wrong")) == 403


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_change_needs_the_xsrf_token_and_no_other_origin(
    jp_serverapp: Any, http_server_client: Any, method: str, path: str
) -> None:
    """The browser sends the owner's cookies along; another port of this host can even read the token."""
    cookies, token = await owners_cookies(jp_serverapp, http_server_client)
    fetch = http_server_client.fetch
    url = jp_serverapp.base_url.rstrip("/") + path
    mine = {"Cookie": cookies, "X-XSRFToken": token}
    assert await status(change(fetch, method, url, **mine)) == CHANGES[method, path]
    assert await status(change(fetch, method, url, Cookie=cookies)) == 403
    other = await change(fetch, method, url, raise_error=False, **mine, Origin="http://127.0.0.1:1")
    assert other.code in (403, 404) and not any(
        word in other.body for word in (b"question", b"probe", b"name")
    )


@pytest.mark.parametrize("path", [*PATHS, *SECRETS])
async def test_a_stranger_may_ask_nothing(jp_fetch: Fetch, path: str) -> None:
    assert await status(jp_fetch(path, headers={"Authorization": "token wrong"})) == 403


@pytest.mark.parametrize("path", [*PATHS, *SECRETS])
async def test_a_page_of_another_site_may_ask_nothing(
    jp_serverapp: Any, http_server_client: Any, path: str
) -> None:
    """The browser sends the owner's cookie along."""
    home = await http_server_client.fetch(
        f"{jp_serverapp.base_url}api?token={jp_serverapp.identity_provider.token}"
    )
    cookies = "; ".join(cookie.partition(";")[0] for cookie in home.headers.get_list("Set-Cookie"))
    url = jp_serverapp.base_url.rstrip("/") + path
    assert await status(http_server_client.fetch(url, headers={"Cookie": cookies})) == (
        404 if "k1" in path else SECRETS.get(path, 200)
    )
    evil = {"Cookie": cookies, "Origin": "http://evil.example"}
    answer = await http_server_client.fetch(url, headers=evil, raise_error=False)
    assert answer.code in (403, 404) and "no front end" not in answer.body.decode()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        body = None if method == "DELETE" else "{}"
        assert await status(
            http_server_client.fetch(url, method=method, body=body, headers={"Cookie": cookies})
        ) in (403, 405)


async def test_nonsense_gets_a_refusal_in_json(jp_fetch: Fetch) -> None:
    """Whatever stands for a kernel or a cell: an answer that says no, as text that no browser takes for a page."""
    loop = asyncio.get_running_loop()

    async def ask(kernel: str, cell: str) -> None:
        path = f"{API}/kernels/{quote(kernel, safe='')}/journal?cell={quote(cell, safe='')}"
        try:
            answer: HTTPResponse | None = await jp_fetch(path)
        except HTTPClientError as error:
            answer = error.response
        assert answer is not None and answer.code in (400, 404)
        if answer.code == 404 and "no front end" in answer.body.decode():
            assert answer.headers["Content-Type"].startswith("application/json")
            assert set(json.loads(answer.body)) == {"message"}

    text = st.text(max_size=200) | st.sampled_from(
        ["..", "../kernels", "<script>", "a\r\nX: y", "\0", "%00", "*", "k" * 4000]
    )

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(text, text)
    def generated(kernel: str, cell: str) -> None:
        asyncio.run_coroutine_threadsafe(ask(kernel, cell), loop).result(60)

    await asyncio.to_thread(generated)
