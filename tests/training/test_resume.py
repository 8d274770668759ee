"""A run that was stopped goes on as if it had not been, and says so where it cannot."""

import shutil

import pytest
import torch
from processes import eventually

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, FolderError
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.training import ddp, single

pytestmark = pytest.mark.usefixtures("no_process_left")


@pytest.mark.parametrize(("train", "world_size", "model"), [(single.train, 1, "mlp"), (ddp.train, 2, "mlp")])
def test_resuming_equals_not_stopping_bit_for_bit(train, world_size, model):
    """The MLP has dropout, so the random streams of all ranks must go on too."""
    config = RunConfig(
        model=model, data="subset", train_samples=600, batch_size=40, epochs=6, num_gpus=world_size, optimizer="adamw"
    )
    whole = launch(train, config)
    expected = whole.wait(60)["fingerprint"]
    cut = launch(train, config)
    assert eventually(cut.folder.checkpoint.exists, 60)
    cut.stop()
    resumed = launch(train, config, resume_from=cut.path)
    assert resumed.wait(60)["fingerprint"] == expected
    first = store.epochs(resumed.path).epoch.min()
    assert first > 1
    assert store.epochs(resumed.path).epoch.tolist() == list(range(first, 7))
    before = store.epochs(cut.path).query("epoch < @first")
    assert store.epochs(resumed.path).seconds[0] > before.seconds.iloc[-1]  # the clock goes on
    with pytest.raises(ConfigError, match="no epoch is left to train"):
        launch(train, config, resume_from=whole.path)
    for column in ("val_accuracy", "train_loss"):
        after = store.epochs(whole.path).query("epoch >= @first")[column].tolist()
        assert store.epochs(resumed.path)[column].tolist() == after


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after an epoch or more, and its config."""
    config = RunConfig(model="mlp", data="subset", train_samples=600, batch_size=20, epochs=500, device="cpu")
    run = launch(single.train, config, tmp_path_factory.mktemp("stopped") / "run")
    assert eventually(run.folder.checkpoint.exists, 60)
    run.stop()
    return config, run.path


def lacks(key):
    def damage(path):
        state = torch.load(path)
        del state[key]
        torch.save(state, path)

    return damage


def of_another_model(path):
    state = torch.load(path)
    state["network"] = torch.nn.Linear(2, 2).state_dict()
    torch.save(state, path)


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "other": of_another_model,
    "number": lambda path: torch.save(7, path),
    **{f"no {key}": lacks(key) for key in ("epochs_done", "step", "seconds", "scaler", "optimizer", "random")},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_checkpoint_that_does_not_fit_is_one_clear_paragraph(stopped, tmp_path, damage):
    config, path = stopped
    shutil.copytree(path, tmp_path / "copy")
    damage(tmp_path / "copy" / "checkpoint.pt")
    with pytest.raises((ConfigError, FolderError)) as caught:
        launch(single.train, config, resume_from=tmp_path / "copy").wait(60)
    message = str(caught.value)
    assert "checkpoint" in message
    assert "Go on from another run, or train anew." in message
    assert "Traceback" not in message
    assert "weights_only" not in message
