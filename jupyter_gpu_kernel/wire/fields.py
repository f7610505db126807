"""Reads JSON objects of other processes: each value is checked for its type and size before it is used."""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, Mapping, Optional

TEXT = 4096
"""The default limit for the length of a text, in characters."""
NUMBER = (1 << 63) - 1
DEPTH = 200
"""The limit for levels of nesting: walking through a value needs stack for each."""
_DIGITS = 4300
"""The limit for the digits of an integer, as in Python versions that have one: parsing takes quadratic time."""


class FieldError(ValueError):
    """A value is missing, has a wrong type, or is too large."""


def load_object(data: bytes, errors: str = "strict") -> Dict[str, Any]:
    """Return the JSON object in these bytes; `errors` as in bytes.decode."""
    try:
        decoded = data.strip().decode("utf-8", errors)
        value, end = _DECODER.raw_decode(decoded)  # `decode` takes twice as long, to look for white space
    except (ValueError, RecursionError) as error:
        raise FieldError(f"malformed JSON: {error}") from None
    if end < len(decoded) or not isinstance(value, dict):
        raise FieldError("the JSON value is not an object")
    if end > DEPTH and decoded.count("{") + decoded.count("[") > DEPTH and _is_deeper(value, DEPTH):
        raise FieldError(f"JSON of more than {DEPTH} levels")
    return value


def text(
    fields: Mapping[str, Any], key: str, default: Optional[str] = None, most: int = TEXT, least: int = 0
) -> str:
    """Return the text at `key`, which must have `least` to `most` characters."""
    value = fields.get(key, default)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise FieldError(f"{key!r} is not a text of {least} to {most} characters")
    return value


def number(
    fields: Mapping[str, Any], key: str, default: Optional[int] = None, least: int = 0, most: int = NUMBER
) -> int:
    """Return the integer at `key`, which must be from `least` to `most`."""
    return _number(fields.get(key, default), key, least, most)


def numbers(fields: Mapping[str, Any], key: str, count: int) -> Optional[List[int]]:
    """Return the list of `count` integers at `key`; None if there is none."""
    values = fields.get(key)
    if values is None:
        return None
    return [_number(value, key, 0, NUMBER) for value in items(fields, key, count, least=count)]


def items(
    fields: Mapping[str, Any], key: str, most: int, least: int = 0, default: Optional[List[Any]] = None
) -> List[Any]:
    """Return the list at `key`, which must have `least` to `most` values."""
    values = fields.get(key, default)
    if not isinstance(values, list) or not least <= len(values) <= most:
        raise FieldError(f"{key!r} is not a list of {least} to {most} values")
    return values


def texts(
    fields: Mapping[str, Any],
    key: str,
    most: int,
    least: int = 0,
    default: Optional[List[str]] = None,
    length: int = TEXT,
) -> List[str]:
    """Return the list at `key`, which must have `least` to `most` texts of at most `length` characters."""
    return [text({key: value}, key, most=length) for value in items(fields, key, most, least, default)]


def _is_deeper(value: Any, depth: int) -> bool:
    level: List[Any] = [value]
    for _ in range(depth):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
    return bool(level)


def _number(value: Any, key: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FieldError(f"{key!r} is not an integer from {least} to {most}")
    return value


def _int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise FieldError(f"a number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=None if hasattr(sys, "get_int_max_str_digits") else _int)
