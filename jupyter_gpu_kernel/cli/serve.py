"""The verb `serve`."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
from functools import partial

from traitlets.config import Application

from .arguments import span
from .verb import Verb

_HOW_TO_USE = """\
In VS Code: Select Kernel → Existing Jupyter Server… → paste this URL.
Ctrl-C ends the server; the kernels keep running."""


class Serve(Verb):
    verb = "serve"
    summary = "Serve your remote kernels to VS Code as a Jupyter server on this computer, until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = "For example: “jupyter gpu-kernel serve --port 8890”. In VS Code, paste the URL."
        parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1 (default: a free one)")
        parser.add_argument(
            "--while-used", metavar="TIME", type=partial(span, least=1),
            help="end the server when no editor has used it for TIME, such as 60s; its kernels keep running",
        )  # fmt: skip

    def run(self) -> int:
        from ..server.serve.app import run

        app, token = Application.instance(), secrets.token_urlsafe(32)
        if app.log_level == logging.INFO:  # it was not chosen, and no request of an editor is of interest
            app.log_level = logging.ERROR
        run(self.args.port, token, app.config, lambda url: self._print(url, token), self.args.while_used)
        return 0

    def _print(self, url: str, token: str) -> None:
        shown = f"{url}?token={token}\n{_HOW_TO_USE}"
        print(json.dumps({"url": url, "token": token}) if self.args.json else shown, flush=True)
