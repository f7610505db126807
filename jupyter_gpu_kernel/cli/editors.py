"""The verbs for editors: `serve` runs a Jupyter server for them; `vscode` installs our extension into those of this
computer, and tells it where the hub listens.

The extension's file, which is made from vscode/, lies in the package if it was built."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from traitlets.config import Application

from .. import __version__
from ..errors import GpuKernelError, SettingsError
from ..hub.paths import hub_address, hub_key_file, sign_in_folder
from ..hub.ssh.config.route import hosts
from ..wire import PROTOCOL
from ..wire.texts import printable
from .arguments import span
from .verb import Verb, print_errors, print_json

EXTENSION = Path(__file__).parents[1] / "vscode_extension" / "remote-gpu.vsix"
EDITORS = ("code", "code-insiders", "codium", "cursor", "code-server")
"""The programs of editors that can install an extension."""
_PATIENCE = 120.0  # seconds for one editor to install it
_LAST_LINES = 3
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


class VSCode(Verb):
    verb = "vscode"
    summary = "Install the extension for VS Code into the editors found: code, codium, cursor, code-server."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=("install", "hub", "hosts"),
            help="install; or, for the extension, as JSON: “hub” starts the hub if there is none and prints where it "
            "listens, “hosts” prints the hosts of your ssh configuration",
        )

    def run(self) -> int:
        if self.args.action == "install":
            return self._install()
        print(json.dumps(self._hub() if self.args.action == "hub" else hosts()))
        return 0

    def _install(self) -> int:
        """Install the extension into each editor. Those that refuse are reported; the exit status is then 1."""
        # On Windows `which` looks into the current folder, too, which may be another person's repository.
        editors = [path for name in EDITORS if (path := shutil.which(name)) and Path(path).is_absolute()]
        if not EXTENSION.is_file():
            raise SettingsError(
                f"the extension was not built: there is no {EXTENSION}",
                remedy="Install a released wheel, or run “make vscode” in the checkout, which needs Node.js.",
            )
        if not editors:
            raise SettingsError(
                f"none of the editors {', '.join(EDITORS)} is on PATH",
                remedy="In VS Code run “Shell Command: Install 'code' command in PATH”, or there choose "
                f"“Extensions: Install from VSIX…” and the file {EXTENSION}.",
            )
        rows = [_install_into(editor) for editor in editors]
        if self.args.json:
            print_json(rows)
        else:
            for row in rows:
                if row["ok"]:
                    print(printable(f"Installed into {row['editor']}."))
        return print_errors(
            GpuKernelError(
                f"{row['editor']} did not install the extension: {row['message']}",
                remedy=f"There choose “Extensions: Install from VSIX…” and the file {EXTENSION}.",
            )
            for row in rows
            if not row["ok"]
        )

    def _hub(self) -> dict[str, Any]:
        """Return {"protocol", "version", "address", "key", "sign_ins"}: "key" is the path of a file, and in the folder
        "sign_ins" the extension looks for kernels that wait until their user signs in."""
        from ..client import HubClient

        HubClient().close()
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "address": hub_address(),
            "key": str(hub_key_file()),
            "sign_ins": str(sign_in_folder()),
        }


def _install_into(editor: str) -> dict[str, Any]:
    """Return {"editor", "ok", "message"}."""
    try:
        done = subprocess.run(
            [editor, "--install-extension", str(EXTENSION), "--force"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"editor": editor, "ok": False, "message": str(error)}
    printed = (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
    return {"editor": editor, "ok": done.returncode == 0, "message": printable(" ".join(printed))}
