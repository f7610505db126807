"""At the end a front end shows the same, whatever was merged, or left out because something newer replaced it."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outputs import NEVER, Waiting, kind_of, message, stream

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log.superseding import TerminalText, collapse
from jupyter_gpu_kernel.wire.messages import Message, keeper_message


def shown(text: str, colours: bool) -> List[Any]:
    """What a terminal shows, or (without colours) JupyterLab, which lays codes over each other like letters."""
    lines: List[Dict[int, Tuple[str, str]]] = [{}]
    column, colour, at = 0, "", 0
    while at < len(text):
        letter = text[at]
        if colours and letter == "\x1b":
            end = text.index("m", at)
            code = text[at : end + 1]
            colour = "" if code in ("\x1b[0m", "\x1b[m") else colour + code
            at = end
        elif letter == "\n":
            lines.append({})
            column = 0
        elif letter == "\r":
            column = 0
        else:
            lines[-1][column] = (letter, colour)
            column += 1
        at += 1
    return [*lines, column, colour]


class FrontEnd:
    """What is on the screen after all these messages: outputs of each cell, widgets, and what else came."""

    def __init__(self, messages: List[Message]) -> None:
        self.outputs: Dict[str, List[List[Any]]] = {}
        self.widgets: Dict[str, Dict[str, Any]] = {}
        self.others: List[Any] = []
        self._clear: Dict[str, bool] = {}
        for one in messages:
            self._take(one)

    def _take(self, message: Message) -> None:
        kind, content = kind_of(message), message.content()
        cell = str(message.parent().get("msg_id")) if kind else ""
        outputs = self.outputs.setdefault(cell, [])
        if kind in ("stream", "display_data", "error") and self._clear.pop(cell, False):
            outputs.clear()
        if kind == "stream":
            if outputs and outputs[-1][0] == content["name"]:
                outputs[-1][1] += content["text"]
            else:
                outputs.append([content["name"], content["text"]])
        elif kind == "display_data":
            outputs.append([kind, content["transient"]["display_id"], content["data"]])
        elif kind == "update_display_data":
            for output in (output for outputs in self.outputs.values() for output in outputs):
                if output[:2] == ["display_data", content["transient"]["display_id"]]:
                    output[2] = content["data"]
        elif kind == "clear_output":
            self._clear[cell] = content["wait"]
            if not content["wait"]:
                outputs.clear()
        elif kind == "comm_msg" and "state" in content["data"]:
            self.widgets.setdefault(content["comm_id"], {}).update(content["data"]["state"])
        else:
            self.others.append((kind, cell, content))
            if kind == "error":
                outputs.append(["error"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrontEnd) and self._seen() == other._seen()

    def _seen(self) -> Any:
        def seen(output: List[Any]) -> List[Any]:
            if output[0] not in ("stdout", "stderr"):
                return output
            return [output[0], shown(output[1], True), shown(output[1], False)]

        return (
            {cell: [seen(o) for o in os] for cell, os in self.outputs.items() if os},
            self.widgets,
            self.others,
        )


TEXT = st.lists(
    st.sampled_from(
        ["a", "bb", "100%", "é█", " ", "\r", "\r", "\n", "\r\n", "\x1b[31m", "\x1b[0m", "\t", "\b"]
    ),
    max_size=12,
).map("".join)
CELL = st.sampled_from("abc")
MESSAGE = st.one_of(
    st.builds(stream, TEXT, CELL, st.sampled_from(["stdout", "stderr"])),
    st.builds(stream, TEXT, CELL),
    st.builds(
        lambda kind, cell, shown, what: message(kind, cell, data=what, transient={"display_id": shown}),
        st.sampled_from(["display_data", "update_display_data"]),
        CELL,
        st.sampled_from("xy"),
        st.integers(),
    ),
    st.builds(lambda cell, wait: message("clear_output", cell, wait=wait), CELL, st.booleans()),
    st.builds(
        lambda cell, comm, state: message(
            "comm_msg", cell, comm_id=comm, data={"method": "update", "state": state}
        ),
        CELL,
        st.sampled_from("uv"),
        st.dictionaries(st.sampled_from(["value", "max", "msg_id"]), st.integers(), min_size=1),
    ),
    st.builds(lambda kind, cell, n: message(kind, cell, n=n), st.sampled_from(NEVER), CELL, st.integers()),
    st.builds(lambda n: keeper_message(event="state", n=n), st.integers()),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(MESSAGE, st.integers(0, 9)), max_size=60), st.sampled_from([0.0005, 0.002, 8]))
def test_a_front_end_shows_the_same_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, published: List[Tuple[Message, int]], memory: float
) -> None:
    """Whatever waits, for however long; some of it is on disk where the memory is small."""
    waiting = Waiting(tmp_path_factory.mktemp("log"), KernelSettings(journal_memory_mib=memory))
    taken: List[Message] = []
    for one, read in published:
        waiting.put(one)
        if not read:
            taken += waiting.take()
    taken += waiting.drain()
    assert waiting.size == 0
    waiting.close()
    assert FrontEnd(taken) == FrontEnd([one for one, _ in published])


@given(st.lists(TEXT), TEXT)
def test_text_that_is_merged_looks_the_same(texts: List[str], before: str) -> None:
    """Also where it goes on in a line that was passed on before."""
    merged = TerminalText()
    for text in texts:
        merged.append(text)
    for colours in (True, False):
        assert shown(before + str(merged), colours) == shown(before + "".join(texts), colours)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("10%\r20%\r30%", "30%"),
        ("10%\r20%\r", "20%\r"),
        ("long one\rshort", "long one\rshort"),
        (
            "\x1b[32m10%\x1b[0m\r\x1b[32m20%\x1b[0m\r\x1b[32m30%\x1b[0m",
            "\x1b[32m10%\x1b[0m\r\x1b[32m30%\x1b[0m",
        ),
        ("10%\x1b[K\r20%\x1b[K\r30%\x1b[K", "10%\x1b[K\r20%\x1b[K\r30%\x1b[K"),
    ],
)
def test_what_a_carriage_return_overwrites(line: str, left: str) -> None:
    assert collapse(line) == left
