"""What all handlers of the HTTP API share: rights, calls to the hub that do not block, and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError, authenticated

from ..errors import GpuKernelError
from ..program import command
from ..wire.texts import node_name, with_program
from .hub_client import hub_client

API = "/jupyter-gpu-kernel/api"
RESOURCE = "kernels"
"""Users who may see, or use, the kernels of this server may see, or use, the remote ones."""


Method = TypeVar("Method", bound=Callable[..., Any])


def permitted(action: str) -> Callable[[Method], Method]:
    """Decorate a handler's method: only a user who is signed in and may do this with kernels ("read", "execute") can
    call it."""
    return lambda method: authenticated(authorized(action)(method))  # type: ignore[return-value]


class Handler(APIHandler):
    """Base of all handlers: each method needs `@permitted`."""

    auth_resource = RESOURCE

    async def prepare(self, **options: Any) -> None:
        """Refuse a GET without the XSRF token, too: it may start the hub, and connect. An image or a link, of another
        site or in an output, sends the cookies along, but no header."""
        await super().prepare(**options)
        if self.request.method == "GET" and not self.token_authenticated:
            self.check_xsrf_cookie()
            if not (self.request.headers.get("X-XSRFToken") or self.settings.get("disable_check_xsrf")):
                raise HTTPError(403, "the header X-XSRFToken is missing")

    def get_json_body(self) -> Any:
        """Return the value of the request's body; an error 400 for what is not JSON, whatever it is."""
        try:
            return super().get_json_body()
        except (UnicodeDecodeError, RecursionError):
            raise HTTPError(400, "Invalid JSON in body of request") from None

    async def answer(self, value: Any) -> None:
        """Send `value` as JSON."""
        await self.finish(json.dumps(value))

    async def refuse(self, status: int, message: str, **more: Any) -> None:
        """Send an HTTP error {"message", …}."""
        self.set_status(status)
        await self.finish(json.dumps({"message": message, **more}))

    async def refuse_with(self, error: GpuKernelError, status: int = 502, **more: Any) -> None:
        """Send an error of ours: {"message", "error": {kind, hop, cause, remedy, …}, …}."""
        described = with_command(error.to_json(), command())
        await self.refuse(status, with_program(str(error), command()), error=described, **more)


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
