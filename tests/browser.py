"""A real browser: headless Chromium with a profile of its own, driven over the pipes of its DevTools protocol.

No port is opened for that, and nothing but Chromium is needed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from waiting import DEADLINE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = """
    headless no-sandbox disable-gpu disable-dev-shm-usage no-first-run no-default-browser-check disable-sync
    disable-background-networking disable-component-update remote-debugging-pipe
"""
REPORTS = {"Runtime.consoleAPICalled", "Log.entryAdded", "Runtime.exceptionThrown"}


class Browser:
    """One page. `reports`: what its console said."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM is not None, "no Chromium"
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It reads descriptor 3 and writes descriptor 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        words = [
            "/bin/bash",
            "-c",
            shell,
            PROGRAM,
            *(f"--{word}" for word in OPTIONS.split()),
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        with open(profile.with_suffix(".log"), "wb") as log:
            self.process = subprocess.Popen(
                words, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        for end in (to_browser, from_browser):
            os.close(end)
        self.reports: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)
        self._buffer = b""
        target = next(t for t in self._ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """A command for the page."""
        return self._ask(method, self._session, **params)

    def open(self, url: str) -> None:
        """Leaves the page for another, or loads the same one anew; unsaved changes are no obstacle."""
        self.evaluate("globalThis.old = 1")
        self.ask("Page.navigate", url=url)
        self.until("globalThis.old === undefined")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; that of its promise."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The first true value of an expression; an exception is none yet."""
        deadline, problem = time.monotonic() + DEADLINE, None
        while time.monotonic() < deadline:
            try:
                if value := self.evaluate(script):
                    return value
            except AssertionError as error:
                problem = error
            time.sleep(0.1)
        raise AssertionError(f"never true: {script}\n{problem}\n{self.reports[-5:]}")

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self._ask("Browser.close")
        for end in (self._write, self._read):
            os.close(end)
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()

    def _ask(self, method: str, session: str = "", **params: Any) -> Any:
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params}
        os.write(
            self._write, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0"
        )
        while (answer := self._next()).get("id") != number:
            if answer.get("method") in REPORTS:
                self.reports.append(answer["params"])
            if answer.get("method") == "Page.javascriptDialogOpening":  # “Leave this page?”
                self._tell("Page.handleJavaScriptDialog", session, accept=True)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _tell(self, method: str, session: str, **params: Any) -> None:
        command = {"id": next(self._numbers), "method": method, "params": params, "sessionId": session}
        os.write(self._write, json.dumps(command).encode() + b"\0")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], DEADLINE)[0], "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))
