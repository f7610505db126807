"""What Slurm's commands print, read by the hub: outputs recorded from Slurm 22.05, and forms of newer versions."""

from __future__ import annotations

import subprocess
from subprocess import CompletedProcess

import pytest

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.slurm import commands, dialect, words
from jupyter_gpu_kernel.hub.slurm.commands import LOCATE, Commands, located
from jupyter_gpu_kernel.hub.slurm.dialect import JobRecord, JobState, expand
from jupyter_gpu_kernel.hub.slurm.words import job_end, why_pending
from jupyter_gpu_kernel.hub.transport.connection import Output
from jupyter_gpu_kernel.wire import durations


def output(text: str, errors: str = "", status: int = 0) -> Output:
    return Output(status, tuple(text.splitlines()), errors)


QUEUE = """\
+14|PENDING|Priority|1795358616|1795358916|gpu|n/a||jgk-0f3e
+13|RUNNING|None|1795358204|1795358264|gpu|gpu1|gpu[1-2]|jgk-a|b
+17|COMPLETED|None|1795358204|1795358204|gpu|gpu1|gpu1|sbatch
-12|gpu,long|4294901750
-14|gpu|4294901746
-15_[1-100]|gpu|4294901740
-11|cpu|4294909999
-10|gpu|0"""


def test_the_queue_is_read_with_places_and_times():
    jobs = dialect.queue(output(QUEUE))
    assert jobs is not None and set(jobs) == {"14", "13", "17"}
    waiting, running = jobs["14"], jobs["13"]
    assert (waiting.state, waiting.reason, waiting.place, waiting.node) == ("PENDING", "Priority", 2, "")
    assert waiting.start_estimate == 1795358616 and waiting.end_time is None and not waiting.over
    assert (running.node, running.nodes, running.end_time) == ("gpu1", ("gpu1", "gpu2"), 1795358264)
    assert running.name == "jgk-a|b" and running.place == 0 and jobs["17"].over


def test_a_row_about_a_job_does_not_list_its_nodes():
    keys = {"id", "state", "reason", "place", "start_estimate", "node", "end_time", "partition"}
    assert set(JobState("1", "RUNNING", nodes=("gpu1", "gpu2"), name="jgk-1").to_json()) == keys


def test_an_account_without_a_shell_says_why_a_command_failed():
    """nologin prints to stdout."""
    refused = output("This account is currently not available.", status=1)
    assert "account is currently not available" in words.failed("squeue", refused, "login").cause


def test_a_place_is_unknown_where_jobs_are_hidden_or_held():
    jobs = dialect.queue(output(QUEUE), private=True)
    assert jobs is not None and jobs["14"].place == 0
    held = "+9|PENDING|JobHeldUser|N/A|N/A|gpu|n/a||jgk-1\n-9|gpu|0\n-8|gpu|5"
    jobs = dialect.queue(output(held))
    assert jobs is not None and jobs["9"].place == 0 and jobs["9"].start_estimate is None


def test_a_place_counts_the_jobs_of_all_partitions_that_a_job_may_use():
    rows = [("1", "a", 9), ("2", "b", 8), ("3", "c", 7), ("4", "a,b", 6), ("5", "b", 6), ("6", "a,b", 5)]
    text = "\n".join(
        f"+{job}|PENDING|Priority|1|1|{names}|n/a||jgk-{job}\n-{job}|{names}|{rank}"
        for job, names, rank in rows
    )
    jobs = dialect.queue(output(text))
    assert jobs is not None
    assert [jobs[job].place for job, _, _ in rows] == [1, 1, 1, 3, 3, 5]


def test_a_huge_queue_is_read_soon():
    rows = [f"+{job}|PENDING|Priority|1|1|gpu,p{job}|n/a||jgk-{job}" for job in range(1, 1000)]
    rows += [f"+{job}|RUNNING|None|1|1|gpu|n1|n[1-9999]|x" for job in range(9000, 18_000)]
    rows += [f"-{job}|gpu,p{job}|5" for job in range(1, 10_000)]
    jobs = dialect.queue(output("\n".join(rows)))
    assert jobs is not None and len(jobs) == 2000
    assert max(len(job.nodes) for job in jobs.values()) == 256


def test_only_the_id_of_a_kernel_is_taken_for_one():
    names = ("jgk-0f3e", "jgk-../../x", "jgk-", "x", f"jgk-{'a' * 65}", "JGK-0f3e")
    assert [JobState("1", "RUNNING", name=name).kernel_id for name in names] == ["0f3e", "", "", "", "", ""]


@pytest.mark.parametrize(
    "state", ["POWER_UP_NODE", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "SUSPENDED", "NEW"]
)
def test_a_job_in_an_unusual_state_still_exists(state):
    assert not JobState("1", state).over and job_end("1", JobRecord(state)) is None


def test_a_queue_that_could_not_be_asked_is_not_an_empty_one():
    assert dialect.queue(output("")) == {}
    assert dialect.queue(output("", status=1)) is None
    assert dialect.queue(output("", status=-1)) is None


@pytest.mark.parametrize(
    "line",
    [
        "+0|RUNNING|None|1|1|gpu|gpu1|gpu1|x",
        "+12; rm|RUNNING|None|1|1|gpu|gpu1|gpu1|x",
        "+12|running\x1b[2J|None|1|1|gpu|gpu1|gpu1|x",
        "+12|RUNNING",
        "*" * 100_000,
    ],
)
def test_malformed_rows_are_left_out(line):
    assert dialect.queue(output(line)) == {}


def test_names_from_the_login_node_are_harmless():
    row = "+12|RUNNING|a\x1b[2Jb|1|1|g\x07|-oProxyCommand=x|gpu1,$(id)|\u202ename"
    jobs = dialect.queue(output(row))
    assert jobs is not None
    job = jobs["12"]
    assert (job.node, job.nodes) == ("", ()) and all(
        text.isprintable() for text in (job.reason, job.partition, job.name)
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[1-2]", ["gpu1", "gpu2"]),
        ("n[008-010,12],login", ["n008", "n009", "n010", "n12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("", []),
        ("(null)", []),
        ("n/a", []),
        ("gpu[1-2", []),
        ("$(id)", []),
    ],
)
def test_lists_of_hosts(text, names):
    assert list(expand(text)) == names


def test_a_list_of_hosts_is_bounded():
    assert len(expand("n[1-999999999]")) == len(expand("a[1-9999]b[1-9999]")) == 4096


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:15", 1815), ("4:00:00", 14400), ("1-12", 129600), ("1-12:30", 131400), ("2-00:00:10", 172810),
     ("UNLIMITED", None), ("four", None), ("", None)],
)  # fmt: skip
def test_time_limits(text, seconds):
    assert durations.limit_seconds(text) == seconds


def test_time_limits_are_written_as_slurm_writes_them():
    assert durations.limit(14400) == "4:00:00" and durations.limit(129600) == "1-12:00:00"
    assert durations.is_limit("infinite") and not durations.is_limit("0") and not durations.is_limit("soon")


SHOWN = (
    "JobId=13 JobName=jgk-1 UserId=alice(2001) GroupId=alice(2001) JobState={state} Reason={reason} "
    "Dependency=(null) ExitCode={exit} RunTime=00:01:05 TimeLimit=00:01:00 TimeMin=N/A Partition=gpu NodeList=gpu1 "
    "BatchHost=gpu1 NumNodes=1 MinCPUsNode=1 MinMemoryNode=32G MinTmpDiskNode=0 Comment=a JobState=COMPLETED b "
    "StdErr=/tmp/o-13 StdOut=/tmp/jupyter-gpu-kernel-alice-0f3e-13.out Power= "
)
# Recorded from Slurm 22.05, except for OUT_OF_MEMORY, which needs cgroups, and DEADLINE.
ENDS = [
    ("TIMEOUT", "TimeLimit", "0:15", "reached its time limit of 00:01:00", "--time"),
    ("CANCELLED", "None", "0:15", "was cancelled", ""),
    ("PREEMPTED", "None", "0:15", "(preemption)", "--partition"),
    ("NODE_FAIL", "NodeDown", "1:0", "a node of it has failed: gpu1", "new job"),
    (
        "OUT_OF_MEMORY",
        "OutOfMemory",
        "0:125",
        "more memory than Slurm allowed it (it asked for 32G)",
        "--mem",
    ),
    ("DEADLINE", "DeadLine", "0:0", "deadline", "--deadline"),
    ("FAILED", "NonZeroExitCode", "95:0", "the kernelspec's Python is not on the node", "--replace"),
    ("FAILED", "NonZeroExitCode", "7:0", "exit status 7", "logs ID"),
    ("FAILED", "JobLaunchFailure", "0:10", "ended by SIGUSR1", "logs ID"),
    ("FAILED", "BadConstraints", "0:1", "no node can give", "--gpu-type"),
    ("COMPLETED", "None", "0:0", "ended normally", ""),
]


def record_of(line: str, name: str = "jgk-1") -> JobRecord | None:
    """What is read of a line of `scontrol show job`, for a user with the id 2001."""
    return dialect.record(output(f"2001\n{line}\naccounting:"), "13", name)


@pytest.mark.parametrize(("state", "reason", "status", "cause", "remedy"), ENDS)
def test_how_a_job_ended(state, reason, status, cause, remedy):
    record = record_of(SHOWN.format(state=state, reason=reason, exit=status))
    end = job_end("13", record)
    assert end is not None and end.state == state
    assert cause in end.cause and remedy in end.remedy
    commands = end.remedy.count("jupyter gpu-kernel")
    assert end.remedy.count("“jupyter gpu-kernel") == commands, "a cell shows it in one line"


def test_a_job_that_has_not_ended_has_no_end():
    for state in ("PENDING", "RUNNING", "COMPLETING"):
        assert job_end("13", record_of(SHOWN.format(state=state, reason="None", exit="0:0"))) is None


ENDED_JOB = SHOWN.format(state="COMPLETED", reason="None", exit="0:0")


@pytest.mark.parametrize(
    "line",
    [
        ENDED_JOB.replace("alice(2001)", "bob(2002)"),
        ENDED_JOB.replace("jgk-1", "jgk-1 JobState=COMPLETED"),
        ENDED_JOB.replace("jgk-1", "jgk-1 UserId=alice(2001) JobState=COMPLETED").replace(
            "JobState=C", "JobState=R"
        ),
        f"JobId=13 JobName=x\n{ENDED_JOB}\n UserId=bob(2002) JobState=RUNNING",
        ENDED_JOB.replace("jgk-1", "jgk-2"),
        ENDED_JOB.replace("JobId=13", "JobId=131"),
    ],
    ids=[
        "another user's",
        "state in the name",
        "owner in the name",
        "job in the name",
        "another kernel's",
        "another id",
    ],
)
def test_a_job_that_is_not_the_users_own_of_this_name_is_not_listed(line):
    """Slurm gives ids again, and a name can contain anything."""
    assert record_of(ENDED_JOB) is not None
    assert record_of(line) is None


def test_a_job_that_slurm_forgot():
    end = job_end("13", None)
    assert end is not None and end.state == "GONE" and "no accounting" in end.cause


@pytest.mark.parametrize(
    "state",
    [
        *("NODE_FAIL", "PREEMPTED", "CANCELLED", "COMPLETED", "REVOKED", "GONE"),
        *("TIMEOUT", "OUT_OF_MEMORY"),
    ],
)
def test_a_front_end_whose_launcher_leaves_with_its_kernel_gets_the_advice_to_restart(state):
    """A cell there reaches nobody."""
    end = job_end("13", JobRecord(state) if state != "GONE" else None)
    assert end is not None and end.remedy.startswith("Run a cell to start a new job")
    assert end.for_front_end(revives=True) == end
    reported = end.for_front_end(revives=False)
    assert reported.remedy.startswith("Restart the kernel to start a new job") and reported.cause == end.cause


# sbatch's words, recorded from 22.05; those about accounts and QOS are documented, as they need accounting.
REFUSALS = [
    ("sbatch: error: invalid partition specified: nosuch\n"
     "sbatch: error: Batch job submission failed: Invalid partition name specified", "--partition"),
    ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
     "--time"),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
     "--account"),
    ("sbatch: error: Batch job submission failed: Invalid qos specification", "--qos"),
    ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
     "and/or time limits)", "--qos"),
    ("sbatch: error: Memory specification can not be satisfied\n"
     "sbatch: error: Batch job submission failed: Requested node configuration is not available", "--mem"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "--gpu-type"),
    ("sbatch: error: Invalid generic resource (gres) specification", "--gpus"),
    ("sbatch: error: Batch job submission failed: Node count specification invalid", "--nodes"),
    ("sbatch: unrecognized option '--foo'", "--sbatch"),
    ("sbatch: error: cli_filter says: no", "administrators"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "option"), REFUSALS)
def test_a_refusal_names_the_option_to_change(text, option):
    error = words.rejected(output("", text, 1), "login")
    assert isinstance(error, SettingsError) and option in error.remedy and error.hop == "login"
    assert text.splitlines()[-1].partition(": ")[2].removeprefix("error: ") in error.cause


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    ],
)
def test_a_controller_that_is_away_is_no_refusal(text):
    assert isinstance(words.rejected(output("", text, 1), "login"), words.ControllerAway)


def test_the_id_of_a_submitted_job():
    assert (
        dialect.submitted(output("13")) == "13" and dialect.submitted(output("Welcome\n13;cluster")) == "13"
    )
    assert dialect.submitted(output("", "sbatch: error: no", 1)) == ""


@pytest.mark.parametrize(
    ("reason", "text", "remedy"),
    [
        ("Resources", "next", ""),
        ("PartitionTimeLimit", "above that of the partition", "--time"),
        ("QOSMaxGRESPerUser", "limit of the QOS is reached", ""),
        ("AssocGrpGRES", "limit of the account is reached", ""),
        ("QOSMaxWallDurationPerJobLimit", "allows one job", "--time"),
        ("JobHeldAdmin", "by an administrator", "administrators"),
        ("ReqNodeNotAvail,_UnavailableNodes:gpu1", "maintenance", ""),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "down, drained", ""),
        ("SomethingNew", "gives this reason", ""),
        ("", "not looked at it", ""),
    ],
)
def test_why_a_job_waits(reason, text, remedy):
    wait = why_pending(reason)
    assert text in wait.text and remedy in wait.remedy and bool(wait.remedy) == bool(remedy)


# --- scripts of the login node, run by a real sh


def run(script: bytes, path: str) -> CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh"], input=script, capture_output=True, env={"PATH": path, "HOME": "/"}, timeout=30
    )


@pytest.fixture
def programs(tmp_path):
    """A folder for programs in place of Slurm's, in front of the usual ones."""

    def add(name: str, script: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return f"{tmp_path}:/usr/bin:/bin"

    return add


def test_the_status_is_that_of_the_last_command(programs):
    path = programs("squeue", "echo row; echo problem >&2; exit 3")
    assert Output.of(run(Commands().script("squeue"), path)) == Output(3, ("row",), "problem")


ENDED = Commands().script(commands.ended_command("13", "jgk-1"))


def test_only_the_order_of_other_users_jobs_is_asked_for(programs):
    """In place of squeue: a program that prints other users' jobs only where they are asked for, and of each job the
    columns that it is asked for."""
    path = programs(
        "squeue",
        """case "$*" in
  *"-u $(id -un)"*) echo '+7|PENDING|Priority|N/A|N/A|gpu|n/a||jgk-1' ;;
  *%j*) echo "names of others" ;;
  *) printf -- '-%s\\n' '7|gpu|5' '8|gpu|9' ;;
esac""",
    )
    jobs = dialect.queue(Output.of(run(Commands().script(commands.queue_command(True)), path)))
    assert jobs is not None and list(jobs) == ["7"] and jobs["7"].place == 2
    jobs = dialect.queue(Output.of(run(Commands().script(commands.queue_command(False)), path)))
    assert jobs is not None and list(jobs) == ["7"] and jobs["7"].place == 0


def test_a_queue_of_which_only_a_part_can_be_asked(programs):
    """A failure is that of the user's own jobs; without the others' only the place is unknown."""
    script = Commands().script(commands.queue_command(True))
    path = programs("squeue", "echo '+7|PENDING|Priority|1|1|gpu|n/a||jgk-1'; exit 1")
    assert dialect.queue(Output.of(run(script, path))) is None
    path = programs(
        "squeue",
        """case "$*" in *-u*) echo '+7|PENDING|Priority|1|1|gpu|n/a||jgk-1' ;; *) exit 1 ;; esac""",
    )
    jobs = dialect.queue(Output.of(run(script, path)))
    assert jobs is not None and jobs["7"].place == 0


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("CANCELLED by 1|0:0|None|gpu1|00:01:00|1000Mc", "was cancelled by daemon"),
        ("CANCELLED by 99999|0:0|None|gpu1|00:01:00|1000Mc", "was cancelled by uid 99999"),
        ("CANCELLED by $(id -u)|0:0|None|gpu1|00:01:00|1000Mc", "was cancelled by you ($(id -un))"),
        ("OUT_OF_MEMORY|0:125|OutOfMemory|gpu1|04:00:00|32G", "allowed it (it asked for 32G)"),
        ("FAILED|7:0|NonZeroExitCode|gpu1|04:00:00|32G", "failed with exit status 7"),
    ],
)
def test_accounting_tells_how_a_job_ended(programs, row, cause):
    """Recorded output of sacct: the practice cluster has no accounting."""
    path = programs("sacct", f'echo "{row}"')
    programs("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    end = job_end("13", dialect.record(Output.of(run(ENDED, path)), "13", "jgk-1"))
    assert end is not None and end.node == "gpu1"
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert cause.replace("$(id -un)", user) in end.cause


def test_without_accounting_nothing_is_told(programs):
    path = programs("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    programs("scontrol", "exit 1")
    assert dialect.record(Output.of(run(ENDED, path)), "13", "jgk-1") is None


def test_the_accounting_is_not_asked_about_a_job_of_which_the_controller_knows_all(programs):
    path = programs("sacct", "echo 'FAILED|7:0|None|gpu9|04:00:00|32G'")
    programs("scontrol", 'echo "JobId=13 JobName=jgk-1 UserId=ada($(id -u)) JobState=TIMEOUT BatchHost=gpu1"')
    record = dialect.record(Output.of(run(ENDED, path)), "13", "jgk-1")
    assert record is not None and (record.state, record.node) == ("TIMEOUT", "gpu1")


def test_a_name_cannot_pretend_to_be_from_the_accounting(programs):
    """Another user's job, to which Slurm has given the id; sacct prints nothing."""
    name = "x\naccounting:\nJobState=FAILED ExitCode=1:0"
    path = programs("scontrol", f"echo 'JobId=13 JobName={name} UserId=bob(7) JobState=RUNNING'")
    programs("sacct", "exit 1")
    assert dialect.record(Output.of(run(ENDED, path)), "13", "jgk-1") is None


def test_a_job_is_not_submitted_twice(programs):
    """The answer to the first attempt was lost: the second one finds the job by its name."""
    path = programs("sbatch", "cat >/dev/null; echo 12")
    programs("squeue", 'echo "CLUSTER: gpu"; case "$*" in *"-n jgk-1 "*) echo 11 ;; esac')
    script = b"#!/bin/bash\n#SBATCH --job-name=jgk-1\n"
    lines = commands.submit_command(script)
    assert dialect.submitted(Output.of(run(Commands().script(lines), path))) == "11"
    lines = commands.submit_command(script.replace(b"jgk-1", b"jgk-2"))
    assert dialect.submitted(Output.of(run(Commands().script(lines), path))) == "12"


def test_the_environment_there_does_not_override_the_script(programs):
    path = programs("sbatch", 'cat; echo "$SBATCH_PARTITION,$SBATCH_OUTPUT,$SBATCH_ACCOUNT,$SSH_CONNECTION"')
    setting = b"export SBATCH_PARTITION=a SBATCH_OUTPUT=b SBATCH_ACCOUNT=c SSH_CONNECTION=d\n"
    lines = commands.test_command(b"#!/bin/bash\n#SBATCH --partition=gpu\n$(echo no) `echo no` \\ 'x\n")
    found = Output.of(run(setting + Commands().script(lines), path))
    assert found.lines[-1] == ",,c," and "$(echo no) `echo no` \\ 'x" in found.lines


def test_slurm_is_found_in_path(programs):
    path = programs("sbatch", "echo slurm 24.05.2")
    programs("scontrol", "echo 'PrivateData             = jobs,usage'")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert located(Output.of(run(LOCATE, path))) == Commands("", "", "slurm 24.05.2", user, True)


def test_a_machine_without_slurm(tmp_path):
    if subprocess.run(["sh", "-c", "command -v sbatch"], capture_output=True).returncode == 0:
        pytest.skip("this machine has Slurm")
    assert located(Output.of(run(LOCATE, "/usr/bin:/bin"))) is None
