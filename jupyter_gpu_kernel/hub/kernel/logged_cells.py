"""The last cells of a kernel with their outputs, as the keeper keeps them. They are requested page by page, so that
nothing else on the link has to wait. As the node decides how many pages there are, pages and bytes are limited."""

from __future__ import annotations

import json
from typing import Any

from ...errors import AgentError
from ..node.node_link import NodeLink

MAX_SIZE = 64 * 1024 * 1024
"""Bytes of JSON in one history; a keeper keeps 16 MiB of messages."""
MAX_PAGES = 5000
"""A keeper keeps 1000 cells, and sends their outputs in pages of a quarter of a megabyte."""


async def read_logged_cells(link: NodeLink, kernel_id: str, cell_id: str = "") -> list[dict[str, Any]]:
    """Return cells, the oldest first; with `cell_id` only the executions of that cell of the notebook.

    {msg_id, cell_id, code, status, execution_count, started, finished, dropped, asks, outputs [{msg_type, content}]}

    Raises AgentError if the node cannot be asked, or does not come to an end.
    """
    return await _CellReader(link, kernel_id).cells(cell_id)


class _CellReader:
    def __init__(self, link: NodeLink, kernel_id: str) -> None:
        self._link = link
        self._kernel_id = kernel_id
        self._pages = 0
        self._size = 0

    async def cells(self, cell_id: str) -> list[dict[str, Any]]:
        cells: list[dict[str, Any]] = []
        last = False
        while not last:
            page = await self._request(cell_id=cell_id, first=len(cells))
            cells += page.get("cells", [])
            last = page.get("last", True) or not page.get("cells")
        return [await self._with_outputs(cell) for cell in cells]

    async def _with_outputs(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Return the cell with its outputs; without outputs if the keeper does not keep it any more."""
        outputs: list[dict[str, Any] | None] = []
        last = not cell.get("outputs")
        while not last:
            page = (await self._request(msg_id=cell["msg_id"], first=len(outputs))).get("cell", {})
            outputs += page.get("outputs", [])
            last = page.get("last", True) or not page.get("outputs")
            cell = {**cell, **page}
        shown = [output for output in outputs if output is not None]
        dropped = cell.get("dropped", False) or len(shown) < len(outputs)
        whole = {key: value for key, value in cell.items() if key != "last"}
        return {**whole, "dropped": dropped, "outputs": shown}

    async def _request(self, **more: Any) -> dict[str, Any]:
        page = await self._link.request("journal", kernel=self._kernel_id, **more)
        self._pages += 1
        self._size += len(json.dumps(page))
        if self._pages > MAX_PAGES or self._size > MAX_SIZE:
            cause = "the node's history of this kernel's cells does not come to an end"
            raise AgentError(
                cause,
                hop=self._link.name,
                remedy="Run %gpu missed in a cell to see what the kernel has kept.",
            )
        return page
