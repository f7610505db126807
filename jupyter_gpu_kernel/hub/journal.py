"""What the last cells of a kernel showed, as its keeper has kept it: asked for page by page, so that nothing else on
the link has to wait."""

from __future__ import annotations

from typing import Any

from .link import Link


async def read_journal(link: Link, kernel_id: str, cell_id: str = "") -> list[dict[str, Any]]:
    """[{msg_id, cell_id, code, status, execution_count, started, finished, dropped, outputs [{msg_type, content}]}].

    Oldest first; with `cell_id` only what that cell of the notebook did. Raises AgentError.
    """
    cells: list[dict[str, Any]] = []
    last = False
    while not last:
        page = await link.request("journal", kernel=kernel_id, cell_id=cell_id, first=len(cells))
        cells += page["cells"]
        last = page["last"] or not page["cells"]
    return [await _whole(link, kernel_id, cell) for cell in cells]


async def _whole(link: Link, kernel_id: str, cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with its outputs; if it is no longer kept, with none."""
    outputs: list[dict[str, Any]] = []
    last = not cell["outputs"]
    while not last:
        answer = await link.request("journal", kernel=kernel_id, msg_id=cell["msg_id"], first=len(outputs))
        page = answer["cell"]
        outputs += page.get("outputs", [])
        last = page.get("last", True) or not page["outputs"]
        cell = {**cell, **page}
    return {**{key: value for key, value in cell.items() if key != "last"}, "outputs": outputs}
