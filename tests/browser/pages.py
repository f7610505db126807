"""Pages of a browser, which fail their test when our code in them fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, WebError
from waiting import DEADLINE

NewPage = Callable[..., Page]
OURS = "jupyter-gpu-kernel"  # in the address of each of our scripts, and in the id of each of our plugins


@contextlib.contextmanager
def pages(browser: Browser, console: list[str]) -> Iterator[NewPage]:
    """Makes pages, each as in a browser with nothing stored, and closes them; `console` gets what they say.

    Afterwards: no script of ours has thrown what nobody catches, and each plugin of ours has started.
    """
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def received(message: ConsoleMessage) -> None:
        console.append(message.text)
        if message.type == "error" and OURS in message.text and "activate" in message.text:
            wrong.append(message.text)

    def thrown(error: WebError) -> None:
        text = error.error.stack or error.error.message
        console.append(text)
        if OURS in text:
            wrong.append(text)

    def new(**options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        context.set_default_timeout(DEADLINE * 1000)
        context.on("console", received)
        context.on("weberror", thrown)
        return context.new_page()

    printed: list[str] = []
    try:
        yield new
    finally:
        printed += wrong  # and not what a page says whose requests end because it is closed
        for context in contexts:
            context.close()
    assert not printed, printed
