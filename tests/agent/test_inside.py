"""What else a kernel finds on the node: ipykernel's own ways, `gpu_kernel`, no TCP port."""

from __future__ import annotations

import json
import os
from pathlib import Path


def test_it_looks_as_ipykernel_launcher_left_it(kernel):
    seen = json.loads(
        kernel.run(
            "import json, os, sys\n"
            "print(json.dumps([sys.argv, sys.path, [n for n in sys.modules if n.startswith('jupyter_gpu')],"
            " sorted(n for n in os.environ if n.startswith('JUPYTER_GPU_KERNEL'))]))"
        )
    )
    argv, path, modules, variables = seen
    assert Path(argv[0]).name == "ipykernel_launcher.py" and argv[1] == "-f"
    assert "" in path and not any("agent-0" in entry for entry in path)
    assert (modules, variables) == ([], ["JUPYTER_GPU_KERNEL_ID"])


def test_status_and_magic(kernel):
    status = eval(kernel.run("import gpu_kernel; print(gpu_kernel.status())"))
    assert (status["id"], status["pid"], status["guard"]) == ("k1", kernel.process.pid, "on")
    assert status["in_use"] is True and isinstance(status["sigterms"], int)
    assert "guard          on" in kernel.run("%gpu")
    assert kernel.run("%gpu nonsense").startswith("usage:")
    kernel.run("import os, sys, types; os.environ['CUDA_VISIBLE_DEVICES'] = 'GPU-1'")
    kernel.run("sys.modules['torch'] = types.SimpleNamespace(version=types.SimpleNamespace(cuda='12.4'))")
    assert "check" not in kernel.run("%gpu")
    kernel.run("sys.modules['torch'].version = types.SimpleNamespace(cuda=None, hip=None)")
    assert "check NAME --gpu" in kernel.run("%gpu")


def test_an_interrupt_ends_a_call_that_the_signal_does_not_reach(kernel):
    """Another thread receives SIGINT: Python handles it in the main thread, which sleeps on. It is the same if the
    signal comes just before the call."""
    block = "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})"
    request = kernel.start(f"{block}; print('asleep'); time.sleep(600)")
    kernel.wait_for(request, "asleep")
    kernel.client.control_channel.send(kernel.client.session.msg("interrupt_request"))
    assert kernel.finish(request)["ename"] == "KeyboardInterrupt"
    kernel.run("signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})")


def test_a_cell_that_is_interrupted_before_its_code_begins_has_a_reply(kernel):
    """IPython transforms the code before it is ready for an interrupt; ipykernel would send no reply."""
    kernel.run("""
def interrupt(lines):
    get_ipython().input_transformers_cleanup.remove(interrupt)
    raise KeyboardInterrupt
get_ipython().input_transformers_cleanup.append(interrupt)
""")
    assert kernel.finish(kernel.start("print('not run')"))["ename"] == "KeyboardInterrupt"
    assert kernel.run("print('runs')") == "runs\n"


def test_only_the_users_own_cells_are_activity(kernel):
    def active():
        last = {"last": "__import__('gpu_kernel')._guard.usage._last_active"}
        return kernel.finish(kernel.start("", silent=True, user_expressions=last))["user_expressions"]

    before = active()
    kernel.run("print()", store_history=False)
    assert active() == before
    kernel.run("print()")
    assert active() != before


def test_the_keeper_gives_gpus(kernel):
    code = "__import__('gpu_kernel').take_gpus(['GPU-1', 'GPU-2'])"
    request = kernel.start("", silent=True, user_expressions={"early": code})
    reply = kernel.finish(request)
    assert reply["user_expressions"]["early"]["data"]["text/plain"] == "False"
    assert kernel.run("!echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER").strip() == "GPU-1,GPU-2 PCI_BUS_ID"


def test_forked_output_arrives_without_a_port(kernel):
    text = kernel.run(
        "import multiprocessing, os, sys\n"
        "child = multiprocessing.get_context('fork').Process(target=print, args=('from a process',))\n"
        "child.start(); child.join()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    print('from a fork'); sys.stdout.flush(); os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint('done')"
    )
    request = next(reversed(list(kernel.texts)))
    assert "done" in text
    kernel.wait_for(request, "from a process")
    kernel.wait_for(request, "from a fork")
    assert listening(kernel.process.pid) == []


def listening(pid):
    """The local addresses of a process's listening TCP sockets, from /proc."""
    links = [os.readlink(str(link)) for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
