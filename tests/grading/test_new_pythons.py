"""New Pythons that a program in the sandbox starts: they are as anywhere else, and watched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from course_lib.grading.sandbox import Program, Record, Sandbox

pytestmark = pytest.mark.slow

REPORT = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "name": __name__, "first": sys.path[0], "folder": os.getcwd(), "input": sys.stdin.read(),
    "colour": os.environ.get("COLOUR"), "names": sorted(os.environ), "watch": "DDP_COURSE_WATCH" in os.environ,
}))
print("to errors", file=sys.stderr)
sys.exit(int(os.environ.get("CODE", 0)))
"""
TRAIN = """
import sys
import torch
model = torch.nn.Linear(2, 1)
model(torch.full((1, 2), float(sys.argv[-1]))).sum().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
"""
# Options of Python, which a new one has to keep, so that no other process can do its work.
ALONE = '"-O", '


def run(sandbox: Sandbox, program: str, *, seconds: float = 60.0, **files: str) -> Record:
    """Run a program beside report.py and train_one.py, with the probes of a training."""
    texts = {"main.py": program, "report.py": REPORT, "train_one.py": TRAIN} | {
        f"{name}.py": files[name] for name in files
    }
    given = {f"node/{name}": text.encode() for name, text in texts.items()}
    return sandbox.run([Program("main.py", folder="node", probes={"group": {}, "training": {}})], given, seconds)


def told(record: Record) -> dict[str, Any]:
    """What the program printed, as JSON in its last line."""
    assert record.program().error is None, record.output
    return json.loads(record.output[0].splitlines()[-1])


@pytest.mark.parametrize("options", ["", ALONE])
@pytest.mark.parametrize("what", ['"report.py"', '"-m", "report"', '"-c", open("report.py").read()'])
def test_a_new_python_gets_what_it_is_given_and_gives_what_it_ends_with(what: str, options: str, sandbox: Sandbox):
    record = run(
        sandbox,
        f"""
import json, os, subprocess, sys
os.mkdir("below")
done = subprocess.run(
    [sys.executable, {options}{what}, "one", "two words"], input="the input", text=True, capture_output=True,
    env={{"COLOUR": "red", "CODE": "7"}},
)
print(json.dumps({{"code": done.returncode, "errors": done.stderr, **json.loads(done.stdout)}}))
""",
    )
    seen = told(record)
    assert (seen["code"], seen["errors"], seen["input"]) == (7, "to errors\n", "the input")
    assert seen["argv"][1:] == ["one", "two words"]
    assert (seen["name"], seen["colour"], seen["watch"]) == ("__main__", "red", False)
    assert set(seen["names"]) - {"LC_CTYPE", "PYTHONPATH"} == {"COLOUR", "CODE"}


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([sys.executable, 'train_one.py', '3'])",
        f"subprocess.run([sys.executable, {ALONE}'train_one.py', '3'])",
        "subprocess.run([sys.executable, 'train_one.py', '3'], env={})",
        f"subprocess.run([sys.executable, {ALONE}'train_one.py', '3'], env={{}})",
        "subprocess.run('echo 1; python -u train_one.py 3', shell=True)",
        "os.system('python train_one.py 3')",
        "os.spawnve(os.P_WAIT, sys.executable, [sys.executable, 'train_one.py', '3'], {})",
        "os.waitpid(os.posix_spawn(sys.executable, [sys.executable, 'train_one.py', '3'], {}), 0)",
        "os.execve(sys.executable, [sys.executable, 'train_one.py', '3'], {})",
        "os.environ.clear(); os.execv(sys.executable, [sys.executable, 'train_one.py', '3'])",
        "here = os.getcwd(); os.chdir('/'); subprocess.run([sys.executable, 'train_one.py', '3'], cwd=here)",
    ],
)
def test_what_it_does_is_seen_however_it_was_started(start: str, sandbox: Sandbox):
    record = run(sandbox, f"import os, subprocess, sys\n{start}\n")
    (process,) = [each for each in record.processes if each.of("forward")]
    assert (process.program, process.place) == (0, None)
    assert process.of("forward")[0]["rows"].tolist() == [[3.0, 3.0]]
    assert len(process.of("step")) == 1
    assert record.program().code == 0


@pytest.mark.parametrize("options", ["", ALONE])
def test_its_errors_are_told(options: str, sandbox: Sandbox):
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, {options}'wrong.py'])"
    record = run(sandbox, program, wrong="import argparse\n\nraise KeyError('a name')\n")
    (error,) = [each.error for each in record.processes if each.error]
    assert (error["type"], error["where"]["line"]) == ("KeyError", 3)


@pytest.mark.parametrize("options", ["", ALONE])
def test_the_course_is_hidden_from_it(options: str, sandbox: Sandbox):
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, {options}'curious.py'])"
    curious = "import torch\nimport course_lib.grading.inside.channel\n"
    (error,) = [each.error for each in run(sandbox, program, curious=curious).processes if each.error]
    assert "No course_lib here" in error["message"]


def test_it_has_the_limits_of_all(sandbox: Sandbox):
    limits = """
import resource, torch
print([resource.getrlimit(name) for name in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)], torch.get_num_threads())
"""
    program = f"""
import json, subprocess, sys
print(json.dumps([
    subprocess.run([sys.executable, *options, "-c", {limits!r}], text=True, capture_output=True, env={{}}).stdout
    for options in ([], ["-O"])
]))
{limits}
"""
    record = run(sandbox, program)
    *_, new, own = record.output[0].splitlines()
    assert json.loads(new) == [own + "\n", own + "\n"]


WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_signals_reach_it_and_it_ends_with_who_was_started(sandbox: Sandbox):
    program = """
import json, os, signal, subprocess, sys, time
def ends(pid):
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
codes, ended = [], []
for number in (signal.SIGTERM, signal.SIGKILL):
    process = subprocess.Popen([sys.executable, "waits.py"], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    process.send_signal(number)
    codes.append(process.wait())
    ended.append(ends(pid))
for code in ("os.kill(os.getpid(), signal.SIGUSR2)", "os.abort()", "sys.exit('why')", "print(1)"):
    codes.append(subprocess.run([sys.executable, "-c", "import os, signal, sys; " + code]).returncode)
print(json.dumps([codes, ended]))
"""
    codes, ended = told(run(sandbox, program, waits=WAITS))
    assert ended == [True] * 2
    assert codes == [5, -9, -12, -6, 1, 0]


def test_one_without_sitecustomize_runs_and_is_not_seen(sandbox: Sandbox):
    program = "import subprocess, sys\nsubprocess.run([sys.executable, '-I', 'train_one.py', '3'], check=True)"
    record = run(sandbox, program)
    assert record.program().code == 0
    assert not [each for each in record.processes if each.of("forward")]
