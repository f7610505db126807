"""`gpu_kernel.on_done`: functions that are called when a long cell has ended, in real kernels."""

from __future__ import annotations

import ast
import signal

from waiting import eventually

NOTES = """import gpu_kernel, time
@gpu_kernel.on_done(after=0)
def note(cell):
    with open({!r}, 'a') as file:
        print(dict(cell._asdict()), file=file)
"""


def noted(path):
    return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_each_long_cell_is_reported_with_how_it_ended(kernel):
    path = kernel.folder / "notes"
    kernel.run(NOTES.format(str(path)))
    kernel.run("1", store_history=False)
    kernel.finish(kernel.start("\n# training\nraise ValueError('no such\\nlayer')"))
    held = kernel.start("print('held')\ntime.sleep(600)")
    kernel.wait_for(held, "held")
    kernel.process.send_signal(signal.SIGINT)
    kernel.finish(held)
    eventually(lambda: len(noted(path)) == 3, "three cells are told")
    first, failed, interrupted = noted(path)
    assert (first["status"], first["error"], first["code"]) == ("ok", "", "import gpu_kernel, time")
    assert (failed["status"], failed["code"], failed["kernel"]) == ("error", "# training", "k1")
    assert failed["text"].startswith(f"Cell [{failed['execution_count']}] on {failed['node']} ended after ")
    assert failed["text"].endswith(": ValueError: no such layer") and failed["seconds"] >= 0
    assert (interrupted["status"], interrupted["finished"] >= interrupted["started"]) == ("interrupted", True)
    assert "note (after 0 s)" in kernel.run("%gpu")
    assert kernel.run("print(gpu_kernel.remove_on_done(note), gpu_kernel.status()['on_done'])") == "1 []\n"
    assert "on_done" not in kernel.run("%gpu")


def test_short_cells_are_not_reported_and_a_function_replaces_its_namesake(kernel):
    kernel.run("import gpu_kernel\ndef told(cell): raise AssertionError\nx = gpu_kernel.on_done(told)")
    kernel.run("@gpu_kernel.on_done\ndef told(cell): raise AssertionError")
    assert kernel.run("print(gpu_kernel.status()['on_done'])") == "['told (after 60 s)']\n"
    assert kernel.run("print(gpu_kernel.remove_on_done(), x is not None)") == "1 True\n"
    text = kernel.run("try: gpu_kernel.on_done(5)\nexcept TypeError as error: print(error)")
    assert "needs a function" in text


def test_a_function_that_fails_or_hangs_harms_nothing(kernel):
    gate = kernel.folder / "gate"
    kernel.run(
        "import gpu_kernel, os, time\n"
        f"def hangs(cell):\n    while not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
        "def fails(cell): gpu_kernel.remove_on_done(); raise SystemExit('no mail server')\n"
    )
    request = kernel.start("gpu_kernel.on_done(hangs, after=0); x = gpu_kernel.on_done(fails, after=0)")
    assert kernel.finish(request)["status"] == "ok"
    assert kernel.run("print('the next cell')") == "the next cell\n"
    gate.touch()
    text = kernel.wait_for(request, "no mail server")
    assert "A function of gpu_kernel.on_done failed (fails):" in text
    event = kernel.event()
    assert event["event"] == "hook" and "no mail server" in event["text"]
    assert kernel.run("print('goes on')") == "goes on\n"


def test_a_shutdown_waits_for_functions_for_a_moment(start):
    kernel = start()
    path = kernel.folder / "notes"
    kernel.run("import time, gpu_kernel\n@gpu_kernel.on_done(after=0)\ndef slow(cell): time.sleep(0.5)\n")
    kernel.run(NOTES.format(str(path)))
    kernel.client.shutdown()
    assert kernel.ended() == 0
    assert any("import gpu_kernel" in cell["code"] for cell in noted(path))
