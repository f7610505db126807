"""What the HTTP API makes of the hub's answers."""

from __future__ import annotations

from jupyter_gpu_kernel.server.api import shown_node, with_command


def test_remedies_name_the_command_as_one_types_it() -> None:
    """In the kernel and in its error: PATH may lack it in a terminal of the server."""
    error = {"hop": "gpu2", "cause": "asks for a code", "remedy": "Sign in: jupyter gpu-kernel login gpu2"}
    kernel = {"id": "k1", "remedy": "See “jupyter gpu-kernel logs k1”.", "error": error}
    reported = with_command(kernel, "/venv/bin/jupyter-gpu-kernel")
    assert reported["error"] == {**error, "remedy": "Sign in: /venv/bin/jupyter-gpu-kernel login gpu2"}
    assert reported["remedy"] == "See “/venv/bin/jupyter-gpu-kernel logs k1”."
    assert with_command({"id": "k1", "error": None}, "x") == {"id": "k1", "error": None}


def test_a_node_cannot_take_the_name_of_another() -> None:
    """A page shows how the user calls it, where its own name is another one."""
    assert shown_node({"node": "gpu2.cluster", "hop": "alice@gpu2"}) == "gpu2.cluster"
    assert shown_node({"node": "gpu1", "hop": "gpu2"}) == "gpu2 (gpu1)"
    assert shown_node({"hop": "gpu2"}) == shown_node({"node": None, "hop": "gpu2"}) == "gpu2"
