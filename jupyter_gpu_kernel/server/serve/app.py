"""The server: jupyter_server's application, with its handlers of kernels, kernelspecs and sessions, and nothing else.

It reads no configuration of the user's own Jupyter server, loads no extension, serves no files, and writes no file.
Only who has the token gets more than the version of jupyter_server.
"""

from __future__ import annotations

import hmac
import logging
import signal
import socket
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.identity import IdentityProvider, User
from jupyter_server.serverapp import ServerApp
from tornado.ioloop import PeriodicCallback
from traitlets.config import Config

from ...errors import SettingsError
from ...provisioner import RemoteGPUProvisioner
from ...wire.runtime import Runtime
from ..extension import forget_failed_starts
from .kernels import RemoteKernels, RemoteKernelSpecs, RemoteSessions
from .websocket import PageConnection

ADDRESS = "127.0.0.1"
_INTERVAL = 1.0
"""Seconds between two looks whether the server is still used."""


class TokenOnly(IdentityProvider):
    """Each request needs the token. No cookie is set, so that none can be valid."""

    async def get_user_token(self, handler: Any) -> User | None:
        """Return a user if the request has the token."""
        sent = self.get_token(handler) or ""
        is_right = hmac.compare_digest(sent.encode(), self.token.encode())
        return self.generate_anonymous_user(handler) if is_right else None

    def should_check_origin(self, handler: Any) -> bool:
        """Also a page with the token has to be one of this server."""
        return True

    def set_login_cookie(self, handler: Any, user: User) -> None:
        """No cookie is needed."""


class HubServer(ServerApp):
    """The server. `start` returns when it was stopped."""

    default_services = ("api", "kernels", "kernelspecs", "sessions")  # type: ignore[assignment]

    def load_config_file(self, *arguments: Any, **options: Any) -> None:
        """Read no file: those are for the user's own Jupyter server."""

    def init_signal(self) -> None:
        """Ctrl-C and SIGTERM stop the server at once: no kernel ends by that."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.stop(from_signal=True))

    def write_server_info_file(self) -> None:
        """Write no file with the token."""

    def write_browser_open_files(self) -> None:
        """Write no file with the token."""

    async def cleanup_kernels(self) -> None:
        """Leave the kernels, which go on."""
        await RemoteGPUProvisioner.leave_all()
        await forget_failed_starts(self.kernel_manager)
        await super().cleanup_kernels()


class LastUse:
    """When somebody with the token used the server last."""

    def __init__(self) -> None:
        self._clock = Runtime().monotonic
        self._time = self._clock()

    def note(self, handler: Any) -> None:
        """A request was answered."""
        if getattr(handler, "current_user", None) is not None:
            self._time = self._clock()

    def stop_when_older(self, server: HubServer, seconds: float) -> None:
        """Stop the server as soon as its last use is so many seconds ago, and no page is connected to a kernel."""
        kernels = server.kernel_manager

        def look() -> None:
            if any(kernels.kernel_model(one)["connections"] for one in kernels.list_kernel_ids()):  # type: ignore[no-untyped-call]
                self._time = self._clock()
            elif self._clock() - self._time > seconds:
                server.stop(from_signal=True)

        self._time = self._clock()
        PeriodicCallback(look, _INTERVAL * 1000).start()


def run(
    port: int, token: str, config: Config, on_ready: Callable[[str], None], while_used: float | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, or until nobody has used the server for `while_used` seconds. `on_ready(url)` is
    called when the server listens. `port`: 0 for a free one.

    Raises SettingsError if the port cannot be used.
    """
    # Traits of other classes are for the user's own Jupyter server.
    own = Config({name: config[name] for name in ("PageConnection", "RemoteGPUProvisioner")})
    own.IdentityProvider.token = token
    own.ContentsManager.files_handler_class = None  # else the files of this folder are served
    last_use = LastUse()
    server = HubServer(
        config=own,
        ip=ADDRESS,
        port=_usable_port(port),
        port_retries=0,
        allow_root=True,
        allow_unauthenticated_access=False,
        cookie_secret=token.encode(),
        log_level=logging.WARNING,
        identity_provider_class=TokenOnly,
        kernel_manager_class=RemoteKernels,
        kernel_spec_manager_class=RemoteKernelSpecs,
        session_manager_class=RemoteSessions,
        kernel_websocket_connection_class=PageConnection,
        extra_services=[PageConnection.__module__],
        tornado_settings={"log_function": last_use.note},  # requests are not logged
    )
    server.initialize(argv=[], find_extensions=False)
    if while_used is not None:
        server.io_loop.add_callback(last_use.stop_when_older, server, while_used)
    server.io_loop.add_callback(on_ready, f"http://{ADDRESS}:{server.port}/")
    server.start()


def _usable_port(port: int) -> int:
    """Return the port, or a free one for 0."""
    try:
        with socket.create_server((ADDRESS, port)) as probe:
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        cause = f"the server cannot listen on port {port}: {getattr(error, 'strerror', None) or error}"
        remedy = "Choose another port, or leave --port out to get a free one."
        raise SettingsError(cause, remedy=remedy) from None
