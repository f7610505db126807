"""Notebook 7, where the list of files is a page of its own, which starts the kernels of new notebooks.

Run by `make test-collaboration`, which installs Notebook 7 into an environment of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from locked import Owner, log_in
from playwright.sync_api import Browser, Page, expect
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab, Notebook
from jupyter_gpu_kernel.client import HubClient

FOLDER = os.environ.get("JUPYTER_GPU_KERNEL_BESIDE", "")
pytestmark = [pytest.mark.full, pytest.mark.skipif(not FOLDER, reason="run by make test-collaboration")]
NEW = "jupyterapp.commands.execute('notebook:create-new', {kernelName: 'locked'}).then(() => 0)"


def test_a_cancelled_sign_in_leads_to_no_other_kernel(
    chromium: Browser, remote: Remote, page: Page, tmp_path: Path, locked: dict[str, Any]
) -> None:
    """The kernelspec that the user has chosen stays selected, where JupyterLab would have selected the first one."""
    remote.write("locked", provisioner=True, **locked)
    with HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    python = str(Path(FOLDER, "notebook", "bin", "python"))
    with Lab(remote, tmp_path, python=python, program="notebook") as lab:
        page.goto(f"http://{lab.address}/tree?token=secret")
        page.wait_for_function("globalThis.jupyterapp?.restored.then(() => true)")
        with page.context.expect_page() as opened:
            page.evaluate(NEW)
        notebook = Notebook(opened.value, "Untitled.ipynb")
        expect(notebook.dialog).to_contain_text("Sign in to login")
        notebook.page.keyboard.press("Escape")
        expect(notebook.dialog).to_contain_text("Select Kernel")
        expect(notebook.dialog.locator("option:checked")).to_have_text("Remote GPU (locked)")
        expect(notebook.page.locator(".Toastify")).to_contain_text("login locked")
        notebook.page.keyboard.press("Escape")
        log_in(remote, locked, Owner())
        notebook.expect_kernel("idle")
        assert notebook.evaluate("PANEL.sessionContext.session.kernel.name") == "locked"
        lab.end_kernels()
