"""Makes docs/pictures/ from real runs, with simulated GPUs: `make pictures`. Not part of `make test`. Needs root, for a
node with a host name of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from locked import locked_way
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab
from browser.pages import NewPage
from jupyter_gpu_kernel.client import HubClient

pytestmark = [
    pytest.mark.pictures,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives a host its name"
    ),
    pytest.mark.timeout(300),
]
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SHOWN = "import os\nos.environ['CUDA_VISIBLE_DEVICES']"
TRAINING = """import time

for epoch in range(1, {epochs}):
    print(f"epoch {{epoch}}: loss {{1 / (epoch + 1):.3f}}", flush=True)
    time.sleep(1)"""
WAVE = (40, 71, 88, 93, 95, 91, 96, 52, 90, 94, 97, 95)
SAMPLES = 24
"""How often the panel asks before its picture is taken, so that there are curves."""


@pytest.fixture(scope="module")
def gpu2(chromium: Browser) -> Iterator[Remote]:
    """A way to the node `gpu2`, whose host name is the same."""
    with tempfile.TemporaryDirectory(prefix="jgk-", dir="/tmp") as folder:
        remote = Remote(Path(folder))
        hops = remote.hops
        hops.route = ("login", "gpu2")
        hops.ssh_config.write_text(hops.ssh_config.read_text().replace("Host work", "Host gpu2"))
        named = 'hostname gpu2 && exec "$@"'
        hops.work.wrapper = ["unshare", "--uts", "sh", "-c", named, "sh"]
        remote.start()
        for kind in ("data", "prefix/share/jupyter"):
            shutil.rmtree(remote.folder / kind / "kernels", ignore_errors=True)
        remote.write("gpu2", provisioner=True, gpus=1)
        try:
            yield remote
        finally:
            remote.stop()


@pytest.fixture(scope="module")
def gpu_lab(gpu2: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with gpu2.in_use(), Lab(gpu2, tmp_path_factory.mktemp("lab")) as server:
        yield server
        server.end_kernels()
        gpu2.nothing_left()


def show_gpus(remote: Remote, step: int = 0, mine: str = "") -> None:
    """What the simulated nvidia-smi says now: the first GPU is another's, and the kernel works on its own."""
    gpus: list[dict[str, Any]] = [{"uuid": uuid} for uuid in (remote.busy, *remote.free)]
    gpus[0] |= {"utilization": 97, "processes": [{"pid": 1, "memory": 61_000, "name": "python"}]}
    for gpu in gpus:
        if gpu["uuid"] == mine:
            gpu |= {"utilization": WAVE[step % len(WAVE)], "ghost": 9_000 + 3_000 * min(step, 9)}
    state = remote.folder / "gpus.json"
    new = state.with_suffix(".new")
    new.write_text(json.dumps({"gpus": gpus}))
    new.replace(state)


def theme(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(scheme == "light").lower())
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)  # until tooltips have gone


def take(page: Page, name: str, part: Locator | None = None) -> None:
    """NAME-light.png and NAME-dark.png, with as few colours as text needs."""
    FOLDER.mkdir(exist_ok=True)
    for scheme in ("dark", "light"):
        theme(page, scheme)
        image = shot(part or page)
        image.quantize(128, dither=Image.Dither.NONE).save(FOLDER / f"{name}-{scheme}.png", optimize=True)


def shot(part: Page | Locator) -> Image.Image:
    return Image.open(io.BytesIO(part.screenshot(animations="disabled", caret="hide"))).convert("RGB")


@pytest.fixture
def view(new_page: NewPage) -> Callable[[int, int], Page]:
    return lambda width, height: new_page(
        viewport={"width": width, "height": height}, device_scale_factor=1.5, reduced_motion="reduce"
    )


def test_panel_and_form(gpu_lab: Lab, gpu2: Remote, view: Callable[[int, int], Page]) -> None:
    page = view(1200, 640)
    show_gpus(gpu2)
    notebook = gpu_lab.notebook(page, "training.ipynb", SHOWN, TRAINING.format(epochs=500), kernel="gpu2")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_done(0)
    mine = notebook.output(0).inner_text().split("'")[1]
    notebook.run(1)
    page.evaluate("void jupyterapp.commands.execute('jupyter-gpu-kernel:open-panel')")
    panel = page.locator(".jp-RemoteGPU-panel")
    expect(panel).to_contain_text("training.ipynb")
    for step in range(SAMPLES):
        show_gpus(gpu2, step, mine)
        with page.expect_response("**/api/overview*"):
            pass
    take(page, "panel")
    panel.get_by_role("button", name="Add a remote GPU…").click()
    form = page.locator(".jp-RemoteGPU-add")
    expect(form).to_be_visible()
    take(page, "add", page.locator("#jp-main-dock-panel"))


def test_cut(gpu_lab: Lab, gpu2: Remote, view: Callable[[int, int], Page]) -> None:
    """An animation: the link is cut while a cell prints; what it printed meanwhile comes afterwards."""
    page = view(720, 580)
    show_gpus(gpu2)
    epochs = 14
    cells = TRAINING.format(epochs=epochs).split("\n\n")
    notebook = gpu_lab.notebook(page, "cut.ipynb", *cells, kernel="gpu2")
    notebook.expect_kernel("idle")
    page.evaluate("jupyterapp.shell.collapseLeft()")
    notebook.run(0)
    notebook.expect_done(0)
    frames: list[Image.Image] = []

    def film(until: Locator, text: str) -> None:
        while True:
            frames.append(shot(page))
            if text in until.inner_text():
                return
            page.wait_for_timeout(500)

    output, area = notebook.output(1), page.locator(".jp-Notebook")
    notebook.run(1)
    film(output, "epoch 5:")
    gpu2.hops.login.stop()
    film(area, "out of reach")
    still = frames[-1]
    for _ in range(8):
        frames.append(shot(page))
        page.wait_for_timeout(500)
    gpu2.hops.login.restart()
    film(output, f"epoch {epochs - 1}:")
    film(page.locator(".jp-RemoteGPU-status"), "connected")
    notebook.expect_done(1)
    frames += [shot(page)] * 6
    animate(frames, still, FOLDER / "cut.png")


def test_prompt(gpu_lab: Lab, gpu2: Remote, view: Callable[[int, int], Page]) -> None:
    page = view(900, 520)
    with tempfile.TemporaryDirectory(prefix="keys-") as folder, locked_way(gpu2, Path(folder)) as way:
        gpu2.write("gpu2", provisioner=True, **way)
        with HubClient() as hub:
            hub.call("hang_up", timeout=DEADLINE)
        gpu_lab.notebook(page, "prompt.ipynb", "1 + 1", kernel="gpu2")
        expect(page.locator(".jp-RemoteGPU-prompt").get_by_label("Passphrase")).to_be_focused()
        take(page, "prompt", page.locator(".jp-Dialog-content"))
        page.keyboard.press("Escape")
        expect(page.locator(".jp-RemoteGPU-prompt")).to_have_count(0)


def animate(frames: list[Image.Image], still: Image.Image, file: Path) -> None:
    """An APNG: half a second a frame, and a repetition for ever. Where nothing moves, `still` is shown."""
    FOLDER.mkdir(exist_ok=True)
    size = (frames[0].width * 2 // 3, frames[0].height * 2 // 3)
    first, *small = [frame.resize(size, Image.Resampling.LANCZOS) for frame in (still, *frames)]
    options = {"save_all": True, "append_images": small, "default_image": True, "optimize": True}
    first.save(file, duration=500, loop=0, **options)
    assert file.stat().st_size < 600_000
