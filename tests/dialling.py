"""Connections over both hops of real OpenSSH, and an owner who answers questions: what tests of SSH join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
from connecting import connect
from sshd import TwoHops

from jupyter_gpu_kernel.hub.ssh import Asker
from jupyter_gpu_kernel.hub.ssh.config.route import Hop
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection

Dial = Callable[..., RouteConnection]


@pytest.fixture(params=["paramiko", "ssh", "direct"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transport of `dial`: each test runs over all."""
    return str(request.param)


@pytest.fixture
def dial(two_hops: TwoHops, transport: str) -> Iterator[Dial]:
    """`connect` over both hops, closed afterwards; keywords replace parts of the last hop or of the call."""
    made: list[RouteConnection] = []

    def dialled(
        route: tuple[Hop, ...] | None = None, *, ask: Asker | None = None, timeout: float = 25.0
    ) -> RouteConnection:
        connection = connect(
            route or two_hops.hops,
            ask=ask,
            timeout=timeout,
            trust_file=two_hops.trust_file,
            transport=transport,
        )
        made.append(connection)
        return connection

    yield dialled
    for connection in made:
        connection.close()


class Owner:
    """Answers what the test says, and remembers the questions."""

    def __init__(self, *secrets: str, knows: bool = True) -> None:
        self.secrets, self.knows = list(secrets), knows
        self.questions: list[str] = []

    def secret(self, hop: str, prompt: str, secret: object) -> str:
        self.questions.append(prompt)
        return self.secrets.pop(0)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self.questions.append(f"{hop} {fingerprint}")
        return self.knows


def behind(two_hops: TwoHops, **changes: object) -> tuple[Hop, ...]:
    """The route with parts of the last hop replaced."""
    login, work = two_hops.hops
    return (login, changed(work, **changes))


def changed(hop: Hop, **changes: object) -> Hop:
    """The hop with parts replaced, also in the arguments for the ssh program."""
    names = {"host": "HostName", "port": "Port", "user": "User"}
    reported = [
        word for key, value in changes.items() if key in names for word in ("-o", f"{names[key]}={value}")
    ]
    keys = changes.get("identity_files", ())
    if keys:
        config = Path(hop.arguments[hop.arguments.index("-F") + 1])
        lines = config.read_text().splitlines(True)
        other = config.with_name("other_config")
        other.write_text("".join(line for line in lines if "IdentityFile" not in line))
        reported += ["-F", str(other), *(f'-oIdentityFile="{key}"' for key in keys)]
        hop = replace(hop, arguments=tuple(word for word in hop.arguments if word not in ("-F", str(config))))
    return replace(hop, arguments=(*reported, *hop.arguments), **changes)  # type: ignore[arg-type]


def in_thread(function: Callable[[], object]) -> SimpleQueue[object]:
    """What `function` returned or raised, once it has."""
    results: SimpleQueue[object] = SimpleQueue()

    def run() -> None:
        try:
            results.put(function())
        except Exception as error:  # the test looks at it
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results
