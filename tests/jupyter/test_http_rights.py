"""Who may ask our HTTP API what: each endpoint alone. And nonsense gets a refusal, as JSON, without a secret.

No hub is there, and none may be started.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jupyter_server.auth import Authorizer
from pytest_jupyter.jupyter_server import *  # noqa: F403 (its fixtures)
from tornado.httpclient import HTTPResponse
from tornado.routing import PathMatches
from tornado.web import RequestHandler

from jupyter_gpu_kernel import server
from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.server.api import API, handlers

pytestmark = pytest.mark.full

Fetch = Callable[..., Awaitable[HTTPResponse]]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NONSENSE = (
    b"",
    b"[]",
    b"1",
    b"null",
    b'"x"',
    b"{",
    b"[" * 20_000,
    b"\xff\xfe",
    b'{"answer": 1e999}',
    b"{}" * 60_000,
)
"""Bodies that no endpoint wants, too large ones included."""


class Endpoint(NamedTuple):
    """One method of one handler, asked for what is not there, or with a wrong body. `owner`: the status that the owner
    gets; `looks`: whether the right to read is enough."""

    method: str
    path: str
    owner: int
    looks: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


QUESTION, PROBE, SIGN_IN = (f"{what}/{'0' * 32}" for what in ("prompts", "probes", "sign-ins"))
ENDPOINTS = [
    Endpoint("GET", "kernels", 200, looks=True),
    Endpoint("GET", "nodes", 200, looks=True),
    Endpoint("GET", "kernels/k1/journal", 404),
    Endpoint("GET", "overview", 200),
    Endpoint("GET", "kernels/k1/story", 404),
    Endpoint("POST", "kernels/k1/interrupt", 400),
    Endpoint("POST", "kernels/k1/restart", 400),
    Endpoint("POST", "kernels/k1/stop", 400),
    Endpoint("POST", "kernels/k1/attach", 400),
    Endpoint("POST", "kernels/k1/priority", 400),
    Endpoint("POST", "nodes/nowhere/login", 404),
    Endpoint("GET", "prompts", 200),
    Endpoint("POST", QUESTION, 404),
    Endpoint("DELETE", QUESTION, 404),
    Endpoint("GET", "sign-ins", 200),
    Endpoint("DELETE", SIGN_IN, 404),
    Endpoint("GET", "ssh-hosts", 200),
    Endpoint("POST", "probes", 400),
    Endpoint("GET", PROBE, 404),
    Endpoint("DELETE", PROBE, 404),
    Endpoint("GET", "kernelspecs", 200),
    Endpoint("POST", "kernelspecs", 400),
    Endpoint("DELETE", "kernelspecs/none", 404),
]
each = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)


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
    config: dict[str, Any] = {"jpserver_extensions": {"jupyter_gpu_kernel": True}}
    return {"ServerApp": config | ({"authorizer_class": authorizer} if authorizer else {})}


@pytest.fixture(autouse=True)
def no_hub(jp_environ: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield
    with pytest.raises(HubError):
        HubClient(start=False)


class Client:
    """Sends requests to the server, with no more than it is told to: neither token nor cookies by itself."""

    def __init__(self, app: Any, http: Any) -> None:
        self._app = app
        self._http = http
        self.token = str(app.identity_provider.token)
        self.page = f"http://127.0.0.1:{app.port}{app.base_url}lab"

    async def ask(self, endpoint: Endpoint, body: bytes = b'{"answer": "x"}', **headers: str) -> HTTPResponse:
        """The response to it; a request that changes something has this body."""
        url = f"{self._app.base_url.rstrip('/')}{API}/{endpoint.path}"
        headers["Content-Type"] = "application/json"
        more = {"body": body} if endpoint.method in ("POST", "PUT", "PATCH") else {}
        fetching = self._http.fetch(url, method=endpoint.method, headers=headers, raise_error=False, **more)
        response: HTTPResponse = await fetching
        self._has_no_secret(response)
        return response

    async def owned(self, endpoint: Endpoint, body: bytes = b'{"answer": "x"}') -> HTTPResponse:
        """The response to its owner."""
        return await self.ask(endpoint, body, Authorization=f"token {self.token}")

    async def cookies(self) -> tuple[str, str]:
        """The owner's cookies in a browser, and the XSRF token among them."""
        url = f"{self._app.base_url}tree?token={self.token}"
        home = await self._http.fetch(url, raise_error=False)
        pairs = [cookie.partition(";")[0] for cookie in home.headers.get_list("Set-Cookie")]
        xsrf = next(pair.partition("=")[2] for pair in pairs if pair.startswith("_xsrf="))
        return "; ".join(pairs), xsrf

    def _has_no_secret(self, response: HTTPResponse) -> None:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            return  # a page of Jupyter itself, which has its owner's token
        secrets = (self.token.encode(), bytes(self._app.cookie_secret))
        assert not any(secret and secret in response.body for secret in secrets)


@pytest.fixture
def client(jp_serverapp: Any, http_server_client: Any) -> Client:
    return Client(jp_serverapp, http_server_client)


def test_every_handler_has_a_row_for_each_of_its_methods() -> None:
    for module in pkgutil.walk_packages(server.__path__, f"{server.__name__}."):
        importlib.import_module(module.name)
    served = {
        (pattern, method)
        for pattern, handler in handlers()
        for method in METHODS
        if _implements(handler, method)
    }
    rows = {(pattern, one.method) for pattern, _ in served for one in ENDPOINTS if _matches(pattern, one)}
    assert rows == served, "each method of each handler is tested"
    assert all(any(_matches(pattern, one) for pattern, _ in served) for one in ENDPOINTS), (
        "no row is left over"
    )


def _implements(handler: type[RequestHandler], method: str) -> bool:
    return getattr(handler, method.lower()) is not getattr(RequestHandler, method.lower())


def _matches(pattern: str, endpoint: Endpoint) -> bool:
    return PathMatches(pattern).regex.fullmatch(f"{API}/{endpoint.path}") is not None


@each
async def test_its_owner_may(client: Client, endpoint: Endpoint) -> None:
    response = await client.owned(endpoint)
    assert response.code == endpoint.owner
    assert response.headers["Content-Type"].startswith("application/json")
    json.loads(response.body)


@each
@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}], ids=["none", "wrong"])
async def test_nobody_may_without_the_token(
    client: Client, endpoint: Endpoint, headers: dict[str, str]
) -> None:
    assert (await client.ask(endpoint, **headers)).code == 403


@each
@pytest.mark.parametrize("authorizer", [ReadOnly])
async def test_who_may_look_may_look_only(client: Client, endpoint: Endpoint) -> None:
    assert (await client.owned(endpoint)).code == (endpoint.owner if endpoint.looks else 403)


@each
async def test_a_page_of_another_site_may_not(client: Client, endpoint: Endpoint) -> None:
    """The browser sends the owner's cookies along; another port of this host can even read the XSRF token."""
    cookies, xsrf = await client.cookies()
    mine = {"Cookie": cookies, "X-XSRFToken": xsrf}
    mine_is = await client.ask(endpoint, **mine)
    assert mine_is.code == endpoint.owner
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        other = await client.ask(endpoint, **mine, Origin=origin)
        assert other.code in (403, 404) and other.body != mine_is.body


@each
async def test_each_request_needs_the_xsrf_token(client: Client, endpoint: Endpoint) -> None:
    cookies, _ = await client.cookies()
    assert (await client.ask(endpoint, Cookie=cookies)).code == 403
    assert (await client.ask(endpoint, Cookie=cookies, **{"X-XSRFToken": "wrong"})).code == 403
    image = await client.ask(endpoint, Cookie=cookies, Referer=client.page)
    assert image.code == 403, "an image in an output of this server's own page"


@pytest.mark.parametrize("path", sorted({one.path for one in ENDPOINTS}))
async def test_no_other_method_is_served(client: Client, path: str) -> None:
    known = {one.method for one in ENDPOINTS if one.path == path}
    for method in set(METHODS) - known:
        assert (await client.owned(Endpoint(method, path, 405))).code == 405


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.method == "POST"], ids=str)
async def test_a_body_that_is_nonsense_or_too_large_is_refused(client: Client, endpoint: Endpoint) -> None:
    for body in NONSENSE:
        response = await client.owned(endpoint, body)
        assert 400 <= response.code < 500, (body[:40], response.body[:400])
        assert response.headers["Content-Type"].startswith("application/json")


async def test_an_id_that_is_nonsense_is_refused(client: Client) -> None:
    """Whatever stands for a kernel or a cell: an answer that says no, as text that no browser takes for a page."""
    loop = asyncio.get_running_loop()

    async def ask(kernel: str, cell: str) -> None:
        named, wanted = quote(kernel, safe=""), quote(cell, safe="")
        for endpoint in (
            Endpoint("GET", f"kernels/{named}/journal?cell={wanted}", 404),
            Endpoint("POST", f"kernels/{named}/stop", 404),
        ):
            response = await client.owned(endpoint, b"{}")
            assert response.code in (400, 404), response.body
            if response.code == 404 and b"kernel" in response.body:
                assert response.headers["Content-Type"].startswith("application/json")
                assert "message" in json.loads(response.body)

    text = st.text(max_size=200) | st.sampled_from(
        ["..", "../kernels", "<script>", "a\r\nX: y", "\0", "%00", "*", "k" * 4000]
    )

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(text, text)
    def generated(kernel: str, cell: str) -> None:
        asyncio.run_coroutine_threadsafe(ask(kernel, cell), loop).result(60)

    await asyncio.to_thread(generated)
