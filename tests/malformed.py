"""JSON, greetings and frames that no well-meaning peer sends: what tests of those who read them join."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.wire import PROTOCOL
from jupyter_gpu_kernel.wire.stream.frames import Frame, Kind, json_frame

HELLO: dict[str, Any] = {"protocol": PROTOCOL, "session": "s", "peer": "", "received": 0, "features": []}
"""One that is right."""
DEEP = b'{"do":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NO_OBJECTS = [b"", b"5", b"[]", b"nonsense", b"\xff", b"[" * 100_000, DEEP, b'{"a": ' + b"9" * 5000 + b"}"]
"""JSON that is none, is no object, or would take too much time or stack to read."""

some = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
few = settings(some, max_examples=40)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
numbers = st.integers(0, 2**64 - 1) | st.integers(0, 9)
_KEYS: list[str] = [*HELLO, "serials", "delivered", "error", "kernel"]


@st.composite
def hellos(draw: st.DrawFn) -> Frame:
    """A HELLO with some values exchanged, or left out."""
    fields = {**HELLO, **draw(st.dictionaries(st.sampled_from(_KEYS), values, max_size=3))}
    for key in draw(st.lists(st.sampled_from(_KEYS), max_size=2)):
        fields.pop(key, None)
    return json_frame(Kind.HELLO, fields)


objects = values | st.dictionaries(st.sampled_from(_KEYS), values, max_size=4)
frames = hellos() | st.builds(
    Frame,
    kind=st.sampled_from(Kind),
    attachment=st.just(0) | st.integers(1, 2**32 - 1),
    number=numbers,
    flags=st.integers(0, 255),
    payload=st.binary(max_size=60) | objects.map(lambda value: json.dumps(value).encode()),
)
