"""What a node answers about environments, also one that means harm: bounded, checked and inert."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_kernel.errors import AgentError, GpuKernelError
from jupyter_gpu_kernel.hub.virtual_env.node_script import MARK, SHAPES, NodeScript

PLAN = {
    "path": "/home/a/env",
    "state": "new",
    "packages": [],
    "python": "/usr/bin/python3",
    "version": "3.11.2",
    "abi": "cp311",
    "machine": "x86_64",
    "libc": "glibc 2.36",
}


class Output:
    """A node whose shell prints this, whatever it is asked."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.asked = b""

    def open(self, command: str) -> Output:
        assert command == "/bin/sh"
        return self

    def read(self, size: int = 0) -> bytes:
        return self.parts.pop(0) if self.parts else b""

    def write(self, data: bytes) -> None:
        self.asked += data

    @contextlib.contextmanager
    def closing_after(self, seconds: float) -> Iterator[threading.Event]:
        yield threading.Event()

    def close(self) -> None:
        pass

    def stderr_tail(self) -> str:
        return ""

    def wait(self, timeout: float) -> int | None:
        return 1


def answer(*parts: bytes, verb: str = "plan") -> dict[str, Any]:
    return NodeScript("gpu2", verb, lambda text: None).run(Output(*parts), "true")


def line(kind: str, value: object) -> bytes:
    return MARK + f"{kind} {json.dumps(value)}\n".encode()


def test_noise_before_the_answer_and_an_answer_in_parts() -> None:
    text = b"Welcome!\r\n" + line("step", "looking") + line("answer", PLAN)
    assert answer(text) == PLAN
    assert answer(*(text[at : at + 7] for at in range(0, len(text), 7))) == PLAN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("machine", "x86_64 --index-url=x"), ("abi", "--pre"), ("libc", "glibc"), ("version", "3"), ("path", "env"),
        ("path", "/home/a\n/b"), ("python", ""), ("state", "fine"), ("packages", [["a", "1", "2"]]),
    ],
)  # fmt: skip
def test_a_value_that_would_become_an_argument_or_a_path_is_checked(key: str, value: object) -> None:
    with pytest.raises(AgentError, match="the node's answer is malformed"):
        answer(line("answer", {**PLAN, key: value}))


def test_a_problem_is_told_in_the_nodes_words_with_our_remedy() -> None:
    with pytest.raises(AgentError) as raised:
        answer(line("problem", {"code": "write", "text": "full\x1b[2J\nRun: rm -rf ~"}))
    assert raised.value.cause == (
        "the environment cannot be made; the node says:\n| full?[2J\n| Run: rm -rf ~"
    )
    assert raised.value.remedy.startswith("Free some space") and "--env-dir" in raised.value.remedy
    with pytest.raises(AgentError, match="the environment cannot be removed; the node gives no reason"):
        answer(line("problem", {"code": {}, "text": None}), verb="remove")


def test_output_without_end_and_no_output_at_all() -> None:
    with pytest.raises(AgentError, match="ended without an answer"):
        answer(*[b"x" * (1 << 20)] * 100)
    with pytest.raises(AgentError, match="its output:\n| gone".replace("|", r"\|")):
        answer(b"gone\n")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    max_leaves=10,
)


@given(
    st.sampled_from(sorted(SHAPES)), st.sampled_from(["answer", "problem", "step", "send", "?"]), json_values
)
def test_any_json(verb: str, kind: str, value: object) -> None:
    with pytest.raises(GpuKernelError):
        answer(line(kind, value), verb=verb)


@given(st.sampled_from(sorted(PLAN)), json_values)
def test_any_value_in_a_plan(key: str, value: object) -> None:
    try:
        plan = answer(line("answer", {**PLAN, key: value}))
    except AgentError:
        return
    assert all(str(one).isprintable() for name, one in plan.items() if name != "packages")


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(GpuKernelError):
        answer(MARK + data)
