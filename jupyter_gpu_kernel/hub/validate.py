"""What a work node says, checked: plain data of known shape and bounded size, or Malformed.

A node may be compromised. Its words pass through here before an id in them names a file or a kernel, and before a text
in them is shown. A wrong container or identifier makes the whole answer malformed; a leaf of a wrong type is unknown
(None, "", False), as it may come from an agent of another version. What is not listed is made small and inert.

This file knows neither links nor front ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container
from typing import Any

from ..wire import remedies
from ..wire.messages import Channel, Message, MessageError
from . import inert

Shape = Callable[[Any], Any]

MORE = 20
"""Keys of an object that this hub does not know."""
KERNELS = 1000
GPUS = 256
PROCESSES = 1000
STORY = 20_000
OUTPUTS = 100_000
HEADER = 64 * 1024
"""Bytes of a message's header: a few of them are kept, and copied, for every message that is being answered."""
VALUES = 1_000_000
"""Values in JSON that this hub reads, each of which takes up to a hundred bytes of memory."""
_READ = ("status", "stream", "execute_input", "execute_reply")
"""Messages of which the hub reads the content; all others it only passes on."""
_OURS = ("error", "hop", "link", "kernel_id", "remedy")
"""Keys by which the hub itself says something."""
_EXACT = 2**53
"""Integers beyond it are not the same number in every program that reads JSON."""
_YEAR_9999 = 253_402_300_799
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NAME = re.compile(r"[ -~]{1,256}")
_WORD = re.compile(r"[a-z_]{1,32}")
_SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")


class Malformed(Exception):
    """This is not what a node may say; the text tells where."""


def answer(do: str, said: dict[str, Any]) -> dict[str, Any]:
    """The answer to the request `do`. Malformed."""
    checked: dict[str, Any] = _ANSWERS.get(do, _ANY)(said)
    return checked


def word(said: dict[str, Any]) -> dict[str, Any]:
    """A keeper's word, {} if this hub does not know it. Malformed."""
    shape = _WORDS.get(inert.line(said.get("event"), 32))
    if shape is None:
        return {}
    checked: dict[str, Any] = dict(shape(said), event=said["event"])
    return checked


def message(data: bytes) -> Message:
    """The message of a kernel, or of its keeper, in these bytes. MessageError: it is none, or one that would take more
    memory to read than it should."""
    said = Message.decode(data)
    ours = said.channel is Channel.KEEPER
    if len(said.parts) < (1 if ours else 4):
        raise MessageError(f"a message of {len(said.parts)} parts")
    if not ours and max(map(len, said.parts[:2])) > HEADER:
        raise MessageError(f"a message with a header of more than {HEADER} bytes")
    if _values(said.parts[0 if ours else 3]) > VALUES and (ours or _is_read(said)):
        raise MessageError(f"a message of more than {VALUES} values")
    return said


def refusal(said: Any) -> dict[str, str]:
    """{"code", "text"} of a refused request; the text is attributed to the node."""
    if not isinstance(said, dict):
        said = {}
    return {"code": _word(said.get("code")), "text": inert.quoted("the node", said.get("text"))}


def is_id(value: Any) -> bool:
    """Whether this may name a kernel, and so a file."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


# ---------------------------------------------------------------------------------------------- shapes


def _fields(*required: str, **shapes: Shape) -> Shape:
    """An object with these keys, of which only `required` ones must be there, and a few others."""

    def checked(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed("an object is expected")
        missing = [key for key in required if key not in value]
        if missing:
            raise Malformed(f"{missing[0]} is missing")
        known = {key: _at(key, shape, value[key]) for key, shape in shapes.items() if key in value}
        return {**_others(value, shapes), **known}

    return checked


def _rows(shape: Shape, most: int) -> Shape:
    """A list of at most `most`."""

    def checked(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Malformed("a list is expected")
        if len(value) > most:
            raise Malformed(f"there are {len(value)}, and {most} are the most")
        return [shape(one) for one in value]

    return checked


def _others(value: dict[str, Any], known: Container[str]) -> dict[str, Any]:
    more = [key for key in value if key not in known and key not in _OURS][:MORE]
    return {inert.line(key, 100): _plain(value[key]) for key in more}


def _at(key: str, shape: Shape, value: Any) -> Any:
    try:
        return shape(value)
    except Malformed as error:
        raise Malformed(f"{key}: {error}") from None


def _or_none(shape: Shape) -> Shape:
    return lambda value: None if value is None else shape(value)


def _text(most: int = inert.LINE) -> Shape:
    return lambda value: inert.line(value, most)


def _word(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _one_of(*words: str) -> Shape:
    def checked(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise Malformed(f"one of {', '.join(words)} is expected")
        return value

    return checked


def _number(least: float = -_EXACT, most: float = _EXACT) -> Shape:
    def checked(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            return None  # NaN is not between anything
        return value

    return checked


def _flag(value: Any) -> bool:
    return value is True


def _is_read(said: Message) -> bool:
    """Whether this hub may read its content: whoever looks for a status looks at the header's bytes."""
    return b'"status"' in said.parts[0] or said.header().get("msg_type") in _READ


def _values(content: bytes) -> int:
    """About how many values this JSON has; 0 where they cannot be too many."""
    if len(content) <= 2 * VALUES:
        return 0
    bare = content.replace(b"\\\\", b"").replace(
        b'\\"', b""
    )  # now each quotation mark begins or ends a string
    strings = bare.count(b'"') // 2
    if strings > VALUES:
        return strings
    return sum(between.count(mark) for between in bare.split(b'"')[::2] for mark in (b",", b"[", b"{"))


def _id(value: Any) -> str:
    if not is_id(value):
        raise Malformed("a kernel's id is expected")
    return str(value)


def _message_id(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Malformed("a message's id is expected")
    return value


def _remedy(value: Any) -> str:
    return remedies.known(value) if isinstance(value, str) else ""


def _plain(value: Any, depth: int = 3) -> Any:
    """Any small JSON value; what is deeper, longer or no number is cut off."""
    if isinstance(value, dict) and depth:
        return {inert.line(key, 100): _plain(value[key], depth - 1) for key in list(value)[:100]}
    if isinstance(value, list) and depth:
        return [_plain(one, depth - 1) for one in value[:100]]
    if isinstance(value, str):
        return inert.line(value)
    return value if isinstance(value, bool) else _count(value)


def _event(value: Any) -> dict[str, Any]:
    """One line of a story: {time, event, text, …}."""
    if not isinstance(value, dict):
        raise Malformed("an object is expected")
    known = {"time": _moment(value.get("time")), "event": _word(value.get("event")) or "?"}
    known["text"] = inert.line(value.get("text"))
    if "remedy" in value:
        known["remedy"] = _remedy(value["remedy"])
    return {**known, **_others(value, known), **known}


def _output(value: Any) -> dict[str, Any] | None:
    """{msg_type, content}: data for a browser, which does not trust it; None if it is not JSON for one."""
    if not isinstance(value, dict) or value.get("msg_type") not in _SHOWN:
        return None
    content = value.get("content")
    try:
        json.dumps(content, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return {"msg_type": value["msg_type"], "content": content} if isinstance(content, dict) else None


_count = _number()
_pid = _number(0, 2**31)
_moment = _number(0, _YEAR_9999)
_mib = _number(0, 1e9)

_STATUS = _fields(
    "id",
    "state",
    id=_id,
    name=_text(200),
    node=_text(255),
    state=_word,
    gpus=_rows(_text(100), GPUS),
    gpu_names=_rows(_text(200), GPUS),
    pid=_pid,
    notebook=_text(4096),
    attached=_flag,
    owner=_text(64),
    by=_text(200),
    since=_moment,
    boot=_text(64),
    cause=_text(),
    evidence=_text(),
    remedy=_remedy,
    asked=_word,
    returncode=_count,
    stderr=lambda value: inert.lines(value),
)
_PROCESS = _fields(pid=_pid, user=_text(64), memory_mib=_mib, name=_text(200), since=_moment)
_LEASE = _fields(user=_text(64), pid=_pid, id=_text(64), since=_moment)
_LEFTOVER = _fields(
    "pid",
    pid=_pid,
    start=_count,
    boot=_text(64),
    command=_text(500),
    kernel=_text(64),
    gpus=_rows(_count, GPUS),
)
_GPU = _fields(
    node=_text(255),
    index=_count,
    uuid=_text(100),
    name=_text(100),
    memory_used_mib=_mib,
    memory_total_mib=_mib,
    utilization=_number(0, 100),
    processes=_rows(_PROCESS, PROCESSES),
    lease=_or_none(_LEASE),
    free=_flag,
    reason=_text(),
    leftovers=_rows(_LEFTOVER, PROCESSES),
)
_CELL: dict[str, Shape] = {
    "msg_id": _message_id,
    "cell_id": _text(200),
    "code": lambda value: value if isinstance(value, str) else "",
    "status": _word,
    "execution_count": _count,
    "started": _moment,
    "finished": _moment,
    "dropped": _flag,
}
_ANY = _fields()
_ANSWERS: dict[str, Shape] = {
    "open": _fields(ok=_flag, kernel=_id),
    "list": _fields("kernels", kernels=_rows(_STATUS, KERNELS)),
    "story": _fields("story", story=_rows(_event, STORY)),
    "stop": _fields("ok", ok=_flag),
    "gpus": _fields("gpus", gpus=_rows(_GPU, GPUS)),
    "left": _fields("kernel", kernel=lambda value: "" if value == "" else _id(value)),
    "leftovers": _fields("leftovers", leftovers=_rows(_LEFTOVER, PROCESSES)),
    "end_leftovers": _fields("ended", ended=_rows(_LEFTOVER, PROCESSES)),
    "journal": _fields(
        cells=_rows(_fields("msg_id", **_CELL, outputs=_count), KERNELS),
        cell=_fields(**_CELL, outputs=_rows(_output, OUTPUTS), last=_flag),
        last=_flag,
    ),
}
_WORDS: dict[str, Shape] = {
    "state": _STATUS,
    "replay": _fields("state", state=_one_of("begin", "end")),
    "mark": _fields("replies", replies=_rows(_message_id, KERNELS)),
    "successor": _ANY,
}
