"""A JupyterLab server for a browser, and a notebook in a page: opened, run and read as a user does."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, Page, expect
from remote import Remote
from servers import Server

SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension/themes": {"adaptive-theme": True},  # as the browser's color_scheme is
}


class Lab(Server):
    """`root` holds its notebooks. Scripts in its pages have JupyterLab's application as `jupyterapp`."""

    def __init__(
        self,
        remote: Remote,
        folder: Path,
        python: str = sys.executable,
        more: Sequence[str] = (),
        program: str = "jupyterlab",
    ) -> None:
        """`more`: options of the server; `program`: "notebook" for Notebook 7."""
        self.root, self._settings = folder / "root", folder / "settings"
        self.root.mkdir(exist_ok=True)
        for plugin, settings in SETTINGS.items():
            self.set(plugin, settings)
        app = "JupyterNotebookApp" if program == "notebook" else "LabApp"
        options = [
            f"--{app}.expose_app_in_browser=True",
            f"--{app}.user_settings_dir={self._settings}",
            f"--{app}.workspaces_dir={folder / 'workspaces'}",
        ]
        super().__init__(remote, self.root, program=[program, *options, *more], python=python)

    def set(self, plugin: str, settings: dict[str, Any]) -> None:
        """The user's settings of a plugin, for pages that are opened from now on."""
        file = self._settings / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))

    def write(self, path: str, *sources: str, kernel: str = "") -> Path:
        """A notebook that was never executed; the cells' ids are c0, c1 …"""
        cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
        spec = {"name": kernel, "display_name": f"Remote GPU ({kernel})", "language": "python"}
        metadata = {"kernelspec": spec} if kernel else {}
        file = self.root / path
        file.write_text(json.dumps(new_notebook(cells=cells, metadata=metadata)))
        return file

    def url(self, path: str = "") -> str:
        """JupyterLab with nothing open but this notebook."""
        return f"http://{self.address}/lab{path and '/tree/' + path}?token=secret&reset"

    def notebook(self, page: Page, path: str, *sources: str, kernel: str = "") -> Notebook:
        """A new notebook with these cells, opened in the page. Without a kernel JupyterLab asks for one."""
        self.write(path, *sources, kernel=kernel)
        return self.open_in(page, path)

    def open_in(self, page: Page, path: str) -> Notebook:
        """A notebook that is there; a page that shows it already is loaded anew."""
        page.goto(self.url(path))
        return Notebook(page, path)

    def end_kernels(self) -> None:
        for kernel in self.ask("GET", "/api/kernels"):
            self.ask("DELETE", f"/api/kernels/{kernel['id']}")


class Notebook:
    """The notebook at `path` in a page of JupyterLab (or of Notebook 7), once it is shown."""

    def __init__(self, page: Page, path: str) -> None:
        self.page, self.path = page, path
        self.cells = page.locator(".jp-Notebook .jp-CodeCell")
        self.status_bar = page.locator("#jp-main-statusbar")
        self.dialog = page.locator(".jp-Dialog")
        expect(self.cells.first).to_be_visible()

    def choose_kernel(self, display_name: str) -> None:
        """In the dialog that JupyterLab shows for a notebook without a kernel, or upon a click on its name."""
        self.dialog.locator("select").select_option(label=display_name)
        self.dialog.locator("button.jp-mod-accept").click()

    def run(self, cell: int) -> None:
        """As with Ctrl+Enter."""
        self.cells.nth(cell).locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Control+Enter")

    def output(self, cell: int) -> Locator:
        return self.cells.nth(cell).locator(".jp-OutputArea")

    def prompt(self, cell: int) -> Locator:
        return self.cells.nth(cell).locator(".jp-InputPrompt")

    def expect_done(self, *cells: int) -> None:
        """Waits until they have run."""
        for cell in cells:
            expect(self.prompt(cell)).to_have_text(re.compile(r"\[\d+\]:"))

    def expect_kernel(self, status: str) -> None:
        """Waits until the page takes the kernel for idle, busy …"""
        self.page.wait_for_function(f"{self.panel}?.sessionContext.session?.kernel?.status === '{status}'")

    @property
    def panel(self) -> str:
        """JavaScript: JupyterLab's object for this notebook."""
        widgets = "[...jupyterapp.shell.widgets('main')]"
        # The path of a shared notebook begins with the name of a drive.
        return f"{widgets}.find(widget => widget.context?.path.split(':').pop() === {json.dumps(self.path)})"

    def evaluate(self, script: str) -> Any:
        """The value of an expression, in which PANEL stands for JupyterLab's object for this notebook."""
        return self.page.evaluate(script.replace("PANEL", f"({self.panel})"))
