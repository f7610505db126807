"""Make docs/jupyterlab.svg: a screenshot of JupyterLab with a Remote GPU kernel, from a run of the demo.

    .venv/bin/python docs/picture.py

The script starts `jupyter gpu-kernel demo --lab`, runs a notebook in headless Chromium, and sends SIGTERM to the kernel
while a cell prints. It needs Linux, JupyterLab, Chromium, and the built JupyterLab extension (`make labextension`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from jupyter_gpu_kernel.demo.cluster import MARK
from jupyter_gpu_kernel.demo.control import sigterm

HERE = Path(__file__).parent
NOTEBOOK = "training.ipynb"
CELLS = (
    "!hostname; nvidia-smi -L -i $CUDA_VISIBLE_DEVICES",
    """import time

for epoch in range(1, 9):
    time.sleep(1)
    print(f"epoch {epoch}: loss {1 / (epoch + 1):.3f}")""",
    "print(f'{epoch} epochs, and the variables are still here')",
)
WIDTH, HEIGHT, SCALE = 1100, 560, 1.5  # in CSS pixels; device pixels per CSS pixel
PANEL = f"[...jupyterapp.shell.widgets('main')].find(widget => widget.context?.path === '{NOTEBOOK}')"
STATUS = "[...document.querySelectorAll('.jp-StatusBar-TextItem')].map(item => item.textContent).join()"
TEXT = f"{PANEL}.node.innerText"


def main() -> None:
    """Start the demo and the browser, make the picture, end both."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "JUPYTER_TOKEN": "picture", "BROWSER": "true"}
        log = Path(home, "log")
        with log.open("wb") as output:
            command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "demo", "--lab"]
            demo = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            folder = Path(found(lambda: re.search(r"in the folder (\S+)", log.read_text()))[1])
            server = found(lambda: next(folder.glob("jupyter/runtime/jpserver-*[0-9].json"), None))
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page(
                    viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE
                )
                image = picture(page, folder, json.loads(server.read_text()))
        finally:
            demo.terminate()
            demo.wait(60)
    (HERE / "jupyterlab.svg").write_text(svg(image))


def found(look: Callable[[], Any]) -> Any:
    """Call `look` until it returns a true value; return that."""
    deadline = time.monotonic() + 60
    while not (value := look()):
        assert time.monotonic() < deadline, "the demo did not start"
        time.sleep(0.1)
    return value


def picture(page: Page, folder: Path, server: dict[str, Any]) -> str:
    """Run the notebook in JupyterLab; return the screenshot, a WebP image in base64."""
    write_notebook(folder)
    page.goto(f"{server['url']}lab/tree/{NOTEBOOK}?token={server['token']}&reset")
    page.wait_for_function(f"{PANEL}?.sessionContext.session?.kernel?.status === 'idle'")
    page.evaluate("(jupyterapp.shell.collapseLeft(), jupyterapp.shell.collapseRight(), 0)")
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(f"{TEXT}.includes('epoch 3:')")
    os.environ[MARK] = str(folder)
    sigterm()
    page.wait_for_function(f"{TEXT}.includes('8 epochs, and') && {STATUS}.includes('1 GPU')")
    page.evaluate("(document.activeElement?.blur(), 0)")
    page.wait_for_timeout(1000)  # until CSS transitions have ended
    devtools = page.context.new_cdp_session(page)
    return str(devtools.send("Page.captureScreenshot", {"format": "webp", "quality": 80})["data"])


def write_notebook(folder: Path) -> None:
    """Write the notebook into the demo's folder, and let scripts use JupyterLab's application object."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for i, source in enumerate(CELLS)
    ]
    spec = {"name": "gpu-demo", "display_name": "Remote GPU (gpu-demo)", "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notebooks" / NOTEBOOK).write_text(json.dumps(content))
    config = folder / "jupyter/config/labconfig/page_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "exposeAppInBrowser": True}))


def svg(image: str) -> str:
    """An SVG file that shows the WebP image, given in base64."""
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>JupyterLab with a Remote GPU kernel</title>
<image width="{WIDTH}" height="{HEIGHT}" href="data:image/webp;base64,{image}"/>
</svg>
"""


if __name__ == "__main__":
    main()
