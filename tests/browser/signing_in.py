"""A node that its owner must sign in to, and somebody who does, with questions to the pages of a JupyterLab."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page
from remote import Remote
from waiting import DEADLINE, eventually

from browser.lab import Lab
from jupyter_gpu_kernel.client import HubClient

API = "/jupyter-gpu-kernel/api"


class SignIn(threading.Thread):
    """Somebody signs in to the locked node. `answer`: what came of it."""

    def __init__(self, lab: Lab, name: str = "locked") -> None:
        super().__init__(daemon=True)
        self._lab, self._path = lab, f"{API}/nodes/{name}/login"
        self.answer: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        self.answer = self._lab.ask("POST", self._path, {})

    def question(self) -> dict[str, Any]:
        return dict(eventually(lambda: self._lab.ask("GET", f"{API}/prompts"), "a question", every=0.1)[0])

    def cancelled(self) -> bool:
        """Cancels the question."""
        self._lab.ask("DELETE", f"{API}/prompts/{self.question()['id']}")
        return self.done() == {"ok": False, "cancelled": True}

    def done(self) -> dict[str, Any]:
        self.join(DEADLINE)
        return self.answer


@pytest.fixture
def node(remote: Remote, locked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The kernelspec "locked", whose connection is not open."""
    remote.write("locked", provisioner=True, **locked)
    with HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
        yield locked
        hub.call("hang_up", timeout=DEADLINE)


def dialog_of(page: Page) -> Locator:
    return page.locator(".jp-RemoteGPU-prompt")
