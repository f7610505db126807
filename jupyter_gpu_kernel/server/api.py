"""What all of the HTTP API shares: the table of its requests, rights, bodies, errors as JSON, and calls to the hub that
do not block."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError, authenticated

from ..client import HubClient
from ..errors import AgentError, GpuKernelError, SettingsError
from ..program import command
from ..provisioner import NotStarted
from ..wire.texts import node_name, with_program

if TYPE_CHECKING:
    from .extension import ServerState

API = "/jupyter-gpu-kernel/api"
RESOURCE = "kernels"
"""Users who may see, or use, the kernels of this server may see, or use, the remote ones."""
STATE = "jupyter_gpu_kernel_state"
"""The key of the `ServerState` in the web application's settings."""

Respond = Callable[..., Awaitable[Any]]
_ROUTES: dict[str, dict[str, Any]] = {}
"""What answers each request: by its path, and by its method in lower case."""


class JsonAnswer(NamedTuple):
    """A JSON answer with its HTTP status."""

    value: Any
    status: int = 200


class RequestRefused(Exception):
    """A request that is refused with this HTTP status. `more`: what the answer has besides the error."""

    def __init__(self, status: int, error: GpuKernelError | str, **more: Any) -> None:
        super().__init__(str(error))
        self.status, self.error, self.more = status, error, more


@contextlib.contextmanager
def refusing(status: int, **more: Any) -> Iterator[None]:
    """Errors of ours within this context refuse the request with this status, and not with that of their class."""
    try:
        yield
    except GpuKernelError as error:
        raise RequestRefused(status, error, **more) from None


def route(method: str, path: str, right: str = "execute") -> Callable[[Respond], Respond]:
    """Decorate the function that answers this request: only a user who is signed in and has this right on kernels
    ("read", "execute") can send it.

    The function gets the handler, and what the groups of the regular expression `path` (below API) match. It returns
    the JSON answer, or a `JsonAnswer` with another status than 200. Errors of ours that it raises are the answer, too.
    """

    def register(respond: Respond) -> Respond:
        answers = authenticated(authorized(right)(_answering(respond)))
        _ROUTES.setdefault(f"{API}/{path}", {})[method.lower()] = answers
        return respond

    return register


def handlers() -> list[tuple[str, type[Handler]]]:
    """Return the handlers of all functions that `route` has decorated."""
    return [(path, type("ApiHandler", (Handler,), methods)) for path, methods in _ROUTES.items()]


def _answering(respond: Respond) -> Respond:
    async def answer(handler: Handler, *arguments: str) -> None:
        try:
            answer = await _answer(respond, handler, *arguments)
        finally:
            if handler.request.method != "GET":  # no page gets an overview from before the request
                handler.state.overview.outdated()
        handler.set_status(answer.status)
        await handler.finish(json.dumps(answer.value))

    return answer


async def _answer(respond: Respond, handler: Handler, *arguments: str) -> JsonAnswer:
    try:
        value = await respond(handler, *arguments)
    except RequestRefused as refused:
        return _refusal(refused)
    except NotStarted as failed:
        return _refusal(RequestRefused(_status(failed.error), failed.error))
    except GpuKernelError as error:
        return _refusal(RequestRefused(_status(error), error))
    return value if isinstance(value, JsonAnswer) else JsonAnswer(value)


def _refusal(refused: RequestRefused) -> JsonAnswer:
    """Return {"message", …}, and for an error of ours "error": {kind, hop, cause, remedy, …}."""
    error, program = refused.error, command()
    shown: dict[str, Any] = {"message": with_program(str(error), program)}
    if isinstance(error, GpuKernelError):
        shown["error"] = with_command(error.to_json(), program)
    return JsonAnswer({**shown, **refused.more}, refused.status)


def _status(error: GpuKernelError) -> int:
    """Return the status for a bad request, for a kernel that no node has, or else for what a node or the hub could not
    do."""
    if isinstance(error, SettingsError):
        return 400
    return 404 if isinstance(error, AgentError) and not error.hop else 502


class Handler(APIHandler):
    """Base of all handlers, whose methods `route` makes."""

    auth_resource = RESOURCE

    @property
    def state(self) -> ServerState:
        """What the handlers of this server share."""
        return self.settings[STATE]  # type: ignore[no-any-return]

    async def prepare(self, **options: Any) -> None:
        """Refuse a GET without the XSRF token, too: it may start the hub, and connect. An image or a link, of another
        site or in an output, sends the cookies along, but no header."""
        await super().prepare(**options)
        if self.request.method == "GET" and not self.token_authenticated:
            self.check_xsrf_cookie()
            if not (self.request.headers.get("X-XSRFToken") or self.settings.get("disable_check_xsrf")):
                raise HTTPError(403, "the header X-XSRFToken is missing")

    def body(self, *names: str, most: int = 16 * 1024) -> dict[str, Any]:
        """Return the request's JSON object, which may have these keys only, and at most so many bytes; {} if there is
        none. Raises RequestRefused or SettingsError."""
        if len(self.request.body) > most:
            raise RequestRefused(413, f"the request has more than {most} bytes")
        try:
            body = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or body.keys() - set(names):
            raise SettingsError(f"the request is not a JSON object with {', '.join(names) or 'nothing'}")
        return body


@contextlib.asynccontextmanager
async def hub_client(*, start: bool = True) -> AsyncIterator[HubClient]:
    """A connection to the hub: `async with hub_client() as hub: await hub.acall(…)`.

    The hub is started if there is none; with `start=False`, raises HubError then. No thread waits for the hub's
    results, so that the server can exit at any time.
    """
    opening = asyncio.create_task(asyncio.to_thread(HubClient, start=start))
    try:
        hub = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_if_opened)
        raise
    try:
        yield hub
    finally:
        await asyncio.to_thread(hub.close)


def _close_if_opened(opening: asyncio.Task[HubClient]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)


async def ask_hub(op: str, *, timeout: float = 60.0, **arguments: Any) -> Any:
    """Return the result of the hub's operation, without blocking the server's loop and without starting a hub."""
    async with hub_client(start=False) as hub:
        return await hub.acall(op, timeout=timeout, **arguments)


async def list_of(op: str) -> list[dict[str, Any]]:
    """Return what the hub lists without using the network; nothing if there is no hub."""
    try:
        return list(await ask_hub(op, timeout=5))
    except GpuKernelError:
        return []


def shown_node(kernel: dict[str, Any]) -> str:
    """Return the name of a kernel's node for a page: a node cannot take the name of another one."""
    hop = str(kernel.get("hop") or "")
    return node_name(str(kernel.get("node") or hop), hop)


def with_command(description: dict[str, Any], program: str) -> dict[str, Any]:
    """The description of a kernel, a node or an error, with `program` for our command in the remedies."""
    description = dict(description)
    if description.get("remedy"):
        description["remedy"] = with_program(description["remedy"], program)
    for nested in ("error", "problem"):
        if isinstance(description.get(nested), dict):  # a keeper's “problem” is a text
            description[nested] = with_command(description[nested], program)
    return description
