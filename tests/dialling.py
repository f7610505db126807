"""Connections over both hops of real OpenSSH, and an owner who answers questions: what tests of SSH join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import SimpleQueue

import pytest
from sshd import TwoHops

from jupyter_gpu_kernel.hub.ssh import Asker
from jupyter_gpu_kernel.hub.ssh.connect import SSHConnection, connect
from jupyter_gpu_kernel.hub.ssh.route import Hop

Dial = Callable[..., SSHConnection]


@pytest.fixture
def dial(two_hops: TwoHops) -> Iterator[Dial]:
    """`connect` over both hops, closed afterwards; keywords replace parts of the last hop or of the call."""
    made: list[SSHConnection] = []

    def dialled(
        route: tuple[Hop, ...] | None = None, *, ask: Asker | None = None, timeout: float = 25.0
    ) -> SSHConnection:
        connection = connect(route or two_hops.hops, ask=ask, timeout=timeout, trust_file=two_hops.trust_file)
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

    def secret(self, hop: str, prompt: str) -> str:
        self.questions.append(prompt)
        return self.secrets.pop(0)

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        self.questions.append(f"{hop} {fingerprint}")
        return self.knows


def behind(two_hops: TwoHops, **changes: object) -> tuple[Hop, ...]:
    """The route with parts of the last hop replaced."""
    login, work = two_hops.hops
    return (login, replace(work, **changes))  # type: ignore[arg-type]


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
