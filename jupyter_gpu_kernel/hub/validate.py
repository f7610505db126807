"""Validates what a work node sends: answers of the agent, events of keepers, and messages of kernels.

A node may be compromised. Its data passes through here before an id names a file or a kernel, and before text is shown.
JSON is checked by shapes. A shape is a function that returns the checked value, of known type and bounded size. A wrong
container or identifier raises Malformed. A leaf of a wrong type becomes unknown (None, "", False), as it may come from
another version. Unknown keys are kept, but made small and harmless. This module knows neither links nor front ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from ..wire import MAX_PRIORITY, remedies
from ..wire.messages import Channel, Data, Message, MessageError
from .sanitize import MAX_LINE, is_id, line, lines, quoted

Shape = Callable[[Any], Any]

MAX_UNKNOWN_KEYS = 20
"""Unknown keys of an object that are kept."""
_OURS = ("error", "hop", "link", "kernel_id", "remedy", "late", "slurm", "away_since")
"""Keys that only the hub itself sets."""
_MAX_INTEGER = 2**53
"""Larger integers are not exact in every program that reads JSON."""
_MESSAGE_ID = re.compile(r"[ -~]{1,256}")
_WORD = re.compile(r"[a-z_]{1,32}")
_MAX_KERNELS = 1000
_MAX_GPUS = 256
_MAX_PROCESSES = 1000
_MAX_HOSTS = 20_000
_MAX_STORY = 20_000
_MAX_HOLDS = 3000
_MAX_OUTPUTS = 100_000
MAX_HEADER = 64 * 1024
"""Bytes of a message's header, of which copies are kept for every message that is being answered."""
MAX_VALUES = 1_000_000
"""JSON values in a message that the hub parses: each takes up to a hundred bytes of memory."""
_PARSED = ("status", "stream", "execute_input", "execute_reply")
"""Messages whose content the hub parses. It passes on all others as bytes."""
_ROOT_ID = re.compile(r"[0-9a-f]{32}")
_YEAR_9999 = 253_402_300_799
_SHOWN = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")


class Malformed(Exception):
    """The value has not the expected shape; the text says where."""


def answer(do: str, data: dict[str, Any]) -> dict[str, Any]:
    """Validate the answer to the request `do`. Raises Malformed if it cannot be used."""
    checked: dict[str, Any] = _ANSWERS.get(do, _ANY)(data)
    return checked


def root_id(value: object) -> str:
    """Return the identity of an agent's folder, "" if this is none."""
    return value if isinstance(value, str) and _ROOT_ID.fullmatch(value) else ""


def keeper_event(data: dict[str, Any]) -> dict[str, Any]:
    """Validate an event of a keeper; {} if this hub does not know it. Raises Malformed if it cannot be used."""
    shape = _EVENTS.get(line(data.get("event"), 32))
    if shape is None:
        return {}
    checked: dict[str, Any] = dict(shape(data), event=data["event"])
    return checked


def message(data: Data) -> Message:
    """Decode a message of a kernel or its keeper. Raises MessageError if it is malformed, or would take too much
    memory to parse."""
    decoded = Message.decode(data)
    ours = decoded.channel is Channel.KEEPER
    if len(decoded.parts) < (1 if ours else 4):
        raise MessageError(f"a message of {len(decoded.parts)} parts")
    if not ours and max(map(len, decoded.parts[:2])) > MAX_HEADER:
        raise MessageError(f"a message with a header of more than {MAX_HEADER} bytes")
    if (ours or _is_parsed(decoded)) and _count_values(decoded.parts[0 if ours else 3]) > MAX_VALUES:
        raise MessageError(f"a message of more than {MAX_VALUES} values")
    return decoded


def refusal(error: Any) -> dict[str, str]:
    """Return {"code", "text"} of a refused request. The text names the node as its source."""
    if not isinstance(error, dict):
        error = {}
    return {"code": word(error.get("code")), "text": quoted("the node", error.get("text"))}


def _is_parsed(decoded: Message) -> bool:
    """Whether the hub may parse its content. It recognises a status by the bytes of the header."""
    return b'"status"' in decoded.parts[0] or decoded.header().get("msg_type") in _PARSED


def _count_values(content: bytes) -> int:
    """Estimate the number of values in this JSON; 0 if they cannot be too many."""
    if len(content) <= 2 * MAX_VALUES:
        return 0
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quotation mark delimits a string now
    strings = bare.count(b'"') // 2
    if strings > MAX_VALUES:
        return strings
    return sum(between.count(mark) for between in bare.split(b'"')[::2] for mark in (b",", b"[", b"{"))


# -------------------------------------------------------------------------------- shapes


def fields(*required: str, **shapes: Shape) -> Shape:
    """Return the shape of an object with these keys, of which only `required` must exist, and a few unknown keys."""

    def checked(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Malformed("an object was expected")
        missing = [key for key in required if key not in value]
        if missing:
            raise Malformed(f"{missing[0]} is missing")
        known = {key: _at(key, shape, value[key]) for key, shape in shapes.items() if key in value}
        return {**unknown_keys(value, shapes), **known}

    return checked


def rows(shape: Shape, most: int) -> Shape:
    """Return the shape of a list with at most `most` values."""

    def checked(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Malformed("a list was expected")
        if len(value) > most:
            raise Malformed(f"the list has {len(value)} values, and at most {most} are allowed")
        return [shape(one) for one in value]

    return checked


def unknown_keys(value: dict[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return at most MAX_UNKNOWN_KEYS unknown keys, truncated and sanitized."""
    more = [key for key in value if key not in known and key not in _OURS][:MAX_UNKNOWN_KEYS]
    return {line(key, 100): plain(value[key]) for key in more}


def _at(key: str, shape: Shape, value: Any) -> Any:
    try:
        return shape(value)
    except Malformed as error:
        raise Malformed(f"{key}: {error}") from None


def or_none(shape: Shape) -> Shape:
    """Return a shape that permits null."""
    return lambda value: None if value is None else shape(value)


def text(most: int = MAX_LINE) -> Shape:
    """Return the shape of one line of text."""
    return lambda value: line(value, most)


def word(value: Any) -> str:
    """Check a word of lower-case letters; "" if it is none."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def one_of(*words: str) -> Shape:
    """Return the shape of one of these words."""

    def checked(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise Malformed(f"one of {', '.join(words)} was expected")
        return value

    return checked


def number(least: float = -_MAX_INTEGER, most: float = _MAX_INTEGER) -> Shape:
    """Return the shape of a number in a range."""

    def checked(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            return None  # also for NaN
        return value

    return checked


def flag(value: Any) -> bool:
    """Check a boolean."""
    return value is True


def kernel_id(value: Any) -> str:
    """Return a kernel's id. Raises Malformed if it is none."""
    if not is_id(value):
        raise Malformed("a kernel's id was expected")
    return str(value)


def message_id(value: Any) -> str:
    """Return a message's id. Raises Malformed if it is none."""
    if not isinstance(value, str) or not _MESSAGE_ID.fullmatch(value):
        raise Malformed("a message's id was expected")
    return value


def plain(value: Any, depth: int = 3) -> Any:
    """Return a small copy of any JSON value: deeper or longer parts are cut off."""
    if isinstance(value, dict) and depth:
        return {line(key, 100): plain(value[key], depth - 1) for key in list(value)[:100]}
    if isinstance(value, list) and depth:
        return [plain(one, depth - 1) for one in value[:100]]
    if isinstance(value, str):
        return line(value)
    return value if isinstance(value, bool) else count(value)


count = number()


# -------------------------------------------------------------------------------- what is expected


def _remedy(value: Any) -> str:
    return remedies.known(value) if isinstance(value, str) else ""


def _event(value: Any) -> dict[str, Any]:
    """Check one line of a story: {time, event, text, …}."""
    return {"time": None, "event": "?", "text": "", **_LINE_OF_STORY(value)}


def _output(value: Any) -> dict[str, Any] | None:
    """Check {msg_type, content} for a browser, which does not trust it; None if a browser could not parse the JSON."""
    if not isinstance(value, dict) or value.get("msg_type") not in _SHOWN:
        return None
    content = value.get("content")
    try:
        json.dumps(content, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return {"msg_type": value["msg_type"], "content": content} if isinstance(content, dict) else None


_moment = number(0, _YEAR_9999)
_mib = number(0, 1e9)
_seconds = number(0, 1e11)
_LINE_OF_STORY = fields(time=_moment, event=lambda value: word(value) or "?", text=text(), remedy=_remedy)
_KEYS: dict[str, Shape] = {
    key: shape
    for shape, keys in (
        (flag, "attached dropped enough free idle left never reservation yours"),
        (word, "asked state status"),
        (count, "cells execution_count index returncode start waiting"),
        (_moment, "detached end_time finished from idle_since since started to"),
        (_seconds, "seconds_busy seconds_held seconds_unknown"),
        (_mib, "memory memory_mib memory_total_mib memory_used_mib"),
        (number(0, 2**31), "pid"),
        (number(1, 100_000), "place"),
        (number(-MAX_PRIORITY, MAX_PRIORITY), "priority"),
        (number(0, 100), "utilization"),
        (number(0, 1e12), "cpu_seconds"),
        (text(64), "boot id kernel owner user"),
        (text(100), "partition"),
        (text(200), "by cell_id name passed session uuid"),
        (text(255), "node"),
        (text(500), "command"),
        (text(4096), "folder notebook"),
        (text(), "cause evidence kept placement reason warning"),
        (lines, "problem stderr waiting_text"),
        (or_none(text(200)), "asks"),
        (rows(text(255), _MAX_HOSTS), "hosts"),
        (rows(text(100), _MAX_GPUS), "usable"),
        (rows(text(200), _MAX_GPUS), "gpu_names"),
        (rows(text(500), _MAX_GPUS), "ignored_leases"),
    )
    for key in keys.split()
}
"""The shape of each key that means the same in every object; none of `_OURS`. An unknown number becomes None."""


def _object(*required: str, **others: Shape) -> Shape:
    """Return the shape of an object: each key has its shape of `others`, or else that of `_KEYS`."""
    return fields(*required, **{**_KEYS, **others})


_job = partial(_object, "id", id=text(20))
_JOB_PROCESS = _job(
    gpus=or_none(text(4096)),
    kernels=rows(kernel_id, _MAX_KERNELS),
    log=fields(path=text(1000), text=partial(lines, most=2000)),
)
_LAST_CELL = _object("status", msg_id=text(300), code=text(200), error=text(200))
_STATUS = _object(
    *("id", "state"),
    id=kernel_id,
    gpus=rows(text(100), _MAX_GPUS),
    job=or_none(_job()),
    last_cell=or_none(_LAST_CELL),
    remedy=_remedy,
)
_OF_QUEUED = ("place", "user", "id", "since", "yours", "priority", "notebook", "gpus")
_QUEUED = _object(*_OF_QUEUED, gpus=number(1, 99))
_LEFTOVER = _object("pid", gpus=rows(count, _MAX_GPUS))
_GPU = _object(
    *("uuid", "queue"),
    uuid=text(100),
    name=text(100),
    processes=rows(_object(), _MAX_PROCESSES),
    lease=or_none(_object()),
    leftovers=rows(_LEFTOVER, _MAX_PROCESSES),
    queue=rows(_QUEUED, _MAX_KERNELS),
)
_LEFT = {"leftovers": rows(_LEFTOVER, _MAX_PROCESSES), "code": rows(_object("folder"), _MAX_KERNELS)}
_cell = partial(
    _object, msg_id=message_id, code=lambda value: value if isinstance(value, str) else "", last=flag
)
_ANY = fields()
_ANSWERS: dict[str, Shape] = {
    "open": fields(ok=flag, kernel=kernel_id),
    "list": fields("kernels", kernels=rows(_STATUS, _MAX_KERNELS)),
    "story": fields("story", story=rows(_event, _MAX_STORY)),
    "stories": fields("kernels", kernels=rows(fields("id", id=kernel_id), _MAX_KERNELS)),
    "stop": fields("ok", ok=flag),
    "job": fields("job", job=_JOB_PROCESS),
    "priority": _object("place"),
    "gpus": fields("gpus", gpus=rows(_GPU, _MAX_GPUS)),
    "offer": _object(),
    "history": fields(
        "history",
        history=rows(_object("uuid", "kernel", "from", kernel=kernel_id), _MAX_HOLDS),
        left_out=number(0),
    ),
    "take_detached": fields("kernel", kernel=lambda value: "" if value == "" else kernel_id(value)),
    "leftovers": fields("leftovers", **_LEFT),
    "end_leftovers": fields("ended", ended=_LEFT["leftovers"], code=_LEFT["code"]),
    "journal": fields(
        cells=rows(_cell("msg_id", outputs=count), _MAX_KERNELS),
        cell=_cell(outputs=rows(_output, _MAX_OUTPUTS)),
        last=flag,
    ),
}
_EVENTS: dict[str, Shape] = {
    "state": _STATUS,
    "replay": fields("state", state=one_of("begin", "end")),
    "mark": fields("replies", replies=rows(message_id, _MAX_KERNELS)),
    "successor": _ANY,
}
