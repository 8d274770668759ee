"""--help answers at once, and says what there is."""

import subprocess
import sys

import pytest
import typer

from course_lib.cli import app
from course_lib.config import MODELS, RunConfig

COMMANDS = ("doctor", "train", "sweep", "report", "check", "grade")
COMMON = {
    *("model", "num_gpus", "num_nodes", "batch_size", "lr", "lr_rule", "epochs"),
    *("train_samples", "device", "seed", "optimizer", "out", "json"),
}
HEAVY = {"torch", "numpy", "pandas", "scipy", "matplotlib", "cloudpickle", "filelock"}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_its_options(cli, command):
    ended = cli(command, "--help")
    assert ended.code == 0
    assert "--json" in ended.out


def test_help_names_the_commands_and_loads_nothing_that_takes_long():
    script = (
        "import sys\n"
        "from course_lib.cli import main\n"
        "code = main(['--help'])\n"
        f"print('LOADED', sorted({HEAVY} & set(sys.modules)), code)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(command in out for command in COMMANDS)
    assert "LOADED [] 0" in out


@pytest.mark.parametrize(("command", "more"), [("train", set()), ("sweep", {"scaling", "repeats"})])
def test_options_are_there_and_their_defaults_are_those_of_the_config(command, more):
    parameters = {each.name: each for each in typer.main.get_command(app).commands[command].params}
    assert COMMON | more <= set(parameters)
    for name, value in RunConfig().to_dict().items():
        if name in parameters and not (command == "sweep" and name == "num_gpus"):
            assert parameters[name].default == value


def test_the_models_are_named(cli):
    text = " ".join(cli("train", "--help").out.replace("│", " ").split())
    assert all(model in text for model in MODELS)
