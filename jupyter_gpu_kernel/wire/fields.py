"""Values in JSON that another process wrote: each is checked for type and size before it is used."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Mapping, Optional

TEXT = 4096
"""Characters of a text, unless its reader allows another number."""
NUMBER = (1 << 63) - 1
DEPTH = 200
"""Levels of nesting. Whoever writes a value out again, or walks through it, needs stack for each."""
_DIGITS = 4300
"""Digits of an integer: Python's own limit, in versions that have it. Reading takes the square of it."""


class FieldError(ValueError):
    """A value is missing, of a wrong type, or too large."""


def load_object(data: bytes, errors: str = "strict") -> Dict[str, Any]:
    """The JSON object in these bytes; `errors` as in bytes.decode."""
    try:
        said = data.decode("utf-8", errors)
        value = json.loads(said, parse_int=_PARSE_INT)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise FieldError("JSON that is no object")
    if said.count("{") + said.count("[") > DEPTH and _is_deeper(value, DEPTH):
        raise FieldError(f"JSON of more than {DEPTH} levels")
    return value


def text(
    said: Mapping[str, Any], key: str, default: Optional[str] = None, most: int = TEXT, least: int = 0
) -> str:
    """The text at `key`, of so many characters."""
    value = said.get(key, default)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise FieldError(f"{key!r} is no text of {least} to {most} characters")
    return value


def number(
    said: Mapping[str, Any], key: str, default: Optional[int] = None, least: int = 0, most: int = NUMBER
) -> int:
    """The integer at `key`, between these two."""
    return _number(said.get(key, default), key, least, most)


def numbers(said: Mapping[str, Any], key: str, count: int) -> Optional[List[int]]:
    """The list of so many integers at `key`; None if there is none."""
    values = said.get(key)
    if values is None:
        return None
    return [_number(value, key, 0, NUMBER) for value in items(said, key, count, least=count)]


def items(
    said: Mapping[str, Any], key: str, most: int, least: int = 0, default: Optional[List[Any]] = None
) -> List[Any]:
    """The list at `key`, of so many values."""
    values = said.get(key, default)
    if not isinstance(values, list) or not least <= len(values) <= most:
        raise FieldError(f"{key!r} is no list of {least} to {most} values")
    return values


def _is_deeper(value: Any, depth: int) -> bool:
    level: List[Any] = [value]
    for _ in range(depth):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
    return bool(level)


def _number(value: Any, key: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FieldError(f"{key!r} is no number from {least} to {most}")
    return value


def _int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise FieldError(f"a number of {len(digits)} digits")
    return int(digits)


_PARSE_INT = None if hasattr(sys, "get_int_max_str_digits") else _int
