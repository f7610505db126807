"""What the last cells of a kernel showed, as its keeper has kept it: asked for page by page, so that nothing else on
the link has to wait. The node decides how many pages there are, so all that is read has a limit."""

from __future__ import annotations

import json
from typing import Any

from ...errors import AgentError
from ..node.link import Link

SIZE = 64 * 1024 * 1024
"""Bytes of JSON in one journal; a keeper keeps 16 MiB of messages."""
PAGES = 5000
"""A keeper keeps 1000 cells, and gives their outputs in pages of a quarter of a megabyte."""


async def read_journal(link: Link, kernel_id: str, cell_id: str = "") -> list[dict[str, Any]]:
    """[{msg_id, cell_id, code, status, execution_count, started, finished, dropped, outputs [{msg_type, content}]}].

    Oldest first; with `cell_id` only what that cell of the notebook did. Raises AgentError.
    """
    return await _Reader(link, kernel_id).cells(cell_id)


class _Reader:
    def __init__(self, link: Link, kernel_id: str) -> None:
        self._link = link
        self._kernel_id = kernel_id
        self._pages = 0
        self._size = 0

    async def cells(self, cell_id: str) -> list[dict[str, Any]]:
        cells: list[dict[str, Any]] = []
        last = False
        while not last:
            page = await self._ask(cell_id=cell_id, first=len(cells))
            cells += page.get("cells", [])
            last = page.get("last", True) or not page.get("cells")
        return [await self._whole(cell) for cell in cells]

    async def _whole(self, cell: dict[str, Any]) -> dict[str, Any]:
        """The cell with its outputs; if it is no longer kept, with none."""
        outputs: list[dict[str, Any] | None] = []
        last = not cell.get("outputs")
        while not last:
            page = (await self._ask(msg_id=cell["msg_id"], first=len(outputs))).get("cell", {})
            outputs += page.get("outputs", [])
            last = page.get("last", True) or not page.get("outputs")
            cell = {**cell, **page}
        shown = [output for output in outputs if output is not None]
        dropped = cell.get("dropped", False) or len(shown) < len(outputs)
        whole = {key: value for key, value in cell.items() if key != "last"}
        return {**whole, "dropped": dropped, "outputs": shown}

    async def _ask(self, **more: Any) -> dict[str, Any]:
        page = await self._link.request("journal", kernel=self._kernel_id, **more)
        self._pages += 1
        self._size += len(json.dumps(page))
        if self._pages > PAGES or self._size > SIZE:
            cause = "the node's journal of this kernel does not come to an end"
            raise AgentError(
                cause, hop=self._link.name, remedy="Show what is left of it in a cell: %gpu missed"
            )
        return page
