"""The benchmarks compare like with like, take turns, and go on where one side fails. Nothing here says how fast."""

import json
import subprocess
import sys
from functools import partial

import pytest

from benchmarks import by_hand, gpu_check, measuring, peers, turns
from course_lib.config import RunConfig
from course_lib.runs.devices import gpu_count
from course_lib.runs.launch import launch
from course_lib.training import ddp, single

CONFIG = RunConfig(data="subset", train_samples=300, batch_size=50, epochs=2, device="cpu", checkpoint=False)


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(("train", "loop", "ranks"), [(single.train, by_hand.single, 1), (ddp.train, by_hand.ddp, 2)])
def test_the_loop_by_hand_does_what_the_trainer_does(train, loop, ranks, tmp_path, no_process_left) -> None:
    config = CONFIG.with_(num_gpus=ranks)
    ours, by_hands = (launch(each, config, tmp_path / each.__module__).wait() for each in (train, loop))
    assert by_hands["val_loss"] == pytest.approx(ours["val_loss"], rel=1e-5)


def test_the_loop_fed_by_a_loader_sees_the_same_images_in_another_order(tmp_path, no_process_left) -> None:
    loops = {"indices": by_hand.single, "loader": partial(by_hand.single, num_workers=0)}
    losses = [launch(loop, CONFIG, tmp_path / name).wait()["val_loss"] for name, loop in loops.items()]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


def test_sides_take_turns_by_epoch_and_the_first_turn_is_left_out(capsys, no_process_left) -> None:
    sides = [turns.launched("one", single.train, CONFIG), turns.launched("two", ddp.train, CONFIG.with_(num_gpus=2))]
    rates = turns.take_turns_by_epoch(sides, 1)
    assert {name: len(taken) for name, taken in rates.items()} == {"one": 1, "two": 1}
    assert min(rates["one"] + rates["two"]) > 0


def test_a_side_that_fails_is_named_with_its_reason(no_process_left) -> None:
    def broken(config, worker):
        raise ValueError("no such thing")

    sides = [turns.launched("ours", single.train, CONFIG), turns.launched("theirs", broken, CONFIG)]
    with pytest.raises(RuntimeError, match=r"theirs ended too early: (?s:.*)no such thing"):
        turns.take_turns_by_epoch(sides, 1)


def test_neither_side_is_always_first() -> None:
    order = []
    sides = {"a": lambda: order.append("a") or 1.0, "b": lambda: order.append("b") or 2.0}
    assert measuring.take_turns(sides, 2) == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert order == ["a", "b", "b", "a"]


def test_a_ratio_above_one_is_ahead_in_seconds_and_in_images_per_second() -> None:
    assert measuring.compare("launch", "s", [1, 1, 3], [10, 20, 30], "theirs", at_least=10.0).ratio == 10
    behind = measuring.compare("speed", "images/s", [90, 95], [100, 100], "theirs", at_least=0.97)
    assert (behind.ratio, behind.reached) == (0.925, False)
    assert measuring.compare("speed", "images/s", [1], [1], "theirs", above=1.0).reached is False


@pytest.mark.parametrize(
    ("line", "reached"), [({"at_most": 2.0}, True), ({"at_most": 1.0}, False), ({"at_least": 1.0}, True), ({}, None)]
)
def test_a_line_is_reached_or_not_or_there_is_none(line, reached) -> None:
    assert measuring.figure("name", "s", [1, 2, 3], **line).reached is reached


def test_all_rows_are_in_the_table_and_in_the_json(tmp_path, capsys) -> None:
    rows = [
        measuring.figure("a figure", "s", [0.5], at_most=1.0),
        measuring.compare("a comparison", "images/s", [1200], [1000], "theirs"),
        measuring.failed("a failure", ValueError("broken\nin many lines")),
        measuring.skipped("nothing", "not here"),
    ]
    measuring.print_table(rows, "title")
    printed = capsys.readouterr().out
    assert all(row.name in printed for row in rows)
    assert "ValueError: broken" in printed
    assert "many lines" not in printed
    path = measuring.write_results(rows, measuring.machine(), quick=True, out=tmp_path / "deep" / "results.json")
    written = json.loads(path.read_text())
    assert [row["name"] for row in written["rows"]] == [row.name for row in rows]
    assert written["versions"]["torch"]
    assert written["machine"]["cores"]
    assert written["date"]


def test_command_measures_what_is_named(tmp_path) -> None:
    done = benchmarks("import_speed", "--quick", "--out", str(tmp_path / "results.json"))
    assert done.returncode == 0, done.stderr
    assert "import course_lib" in done.stdout
    assert json.loads((tmp_path / "results.json").read_text())["quick"] is True


def test_command_refuses_a_name_that_it_does_not_know() -> None:
    done = benchmarks("speed")
    assert done.returncode == 2
    assert "import_speed" in done.stderr


def test_main_module_is_light_since_spawn_imports_it_again() -> None:
    code = "import benchmarks.__main__, sys; sys.exit(sorted({'torch', 'rich', 'numpy'} & set(sys.modules)) or None)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_peer_that_is_missing_or_fails_is_a_row(monkeypatch, no_process_left) -> None:
    absent = peers.Peer("absent", "no_such_package", ("benchmarks.peer_absent",))
    broken = peers.Peer("broken", "torch", ("benchmarks.no_such_module",))
    monkeypatch.setattr(peers, "PEERS", (absent, broken))
    monkeypatch.setattr(turns, "TURN_LIMIT", 3.0)
    missing, *failures = peers.measure(quick=True)
    assert "not installed" in missing.note
    assert missing.reached is None
    assert [row.reached for row in failures] == [False, False]
    assert "no_such_module" in failures[0].note


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU here")
def test_without_a_gpu_its_check_says_so_and_fails_nothing() -> None:
    (row,) = gpu_check.measure(quick=True)
    assert "no GPU" in row.note
    assert row.reached is None
