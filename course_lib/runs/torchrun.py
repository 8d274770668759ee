"""Take part in a run that torchrun started: this process already is one of the ranks.

torchrun tells each process its place by RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE, and where
all meet by MASTER_ADDR and MASTER_PORT. It watches the processes and ends them all when one fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from course_lib.config import RunConfig
from course_lib.errors import ConfigError, CourseError, FolderError, HangError, RankError
from course_lib.runs import devices
from course_lib.runs.devices import Place
from course_lib.runs.events import EventReader
from course_lib.runs.exit_codes import EXIT_FAILED, EXIT_FINISHED
from course_lib.runs.folder import RunFolder, read_json
from course_lib.runs.machine import Measuring
from course_lib.runs.verdict import GRACE_SECONDS, Ranks, verdict

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


def started_by_torchrun() -> bool:
    """Whether this process is a rank of torchrun's."""
    return all(name in os.environ for name in VARIABLES)


def as_started(config: RunConfig) -> RunConfig:
    """The config with as many ranks and nodes as torchrun started, whatever it said before.

    Raises:
        ConfigError: the nodes have different numbers of ranks, or they were to be simulated.
    """
    if config.simulated:
        raise ConfigError("Simulated ranks take one process, and torchrun starts many. Start this script without it.")
    world_size, local_world_size = _number("WORLD_SIZE"), _number("LOCAL_WORLD_SIZE")
    if world_size % local_world_size:
        raise ConfigError(f"torchrun started {world_size} ranks, and {local_world_size} on this node: nodes differ.")
    return config.with_(num_gpus=local_world_size, num_nodes=world_size // local_world_size)


class JoinedRun:
    """A run that this process took part in, over by the time it is made. Reads like a `Run`."""

    def __init__(self, config: RunConfig, folder: RunFolder, images: int, place: Place, exit_code: int) -> None:
        self.config = config
        self.folder = folder
        self.images = images
        self._rank = place.rank
        self._exit_code = exit_code
        self._reader = EventReader(folder.path)

    @property
    def path(self) -> Path:
        """The folder of this run."""
        return self.folder.path

    @property
    def status(self) -> str:
        """How it ended, as far as this rank can tell: "finished" or "failed"."""
        return "finished" if self._exit_code == EXIT_FINISHED else "failed"

    def wait(self, timeout: float | None = None) -> Any:
        """What this rank's function returned.

        Raises:
            CourseError: it failed; says why.
        """
        if self._exit_code != EXIT_FINISHED:
            raise self._verdict()
        ends = (event for event in EventReader(self.path).read_new() if event["kind"] == "end")
        return next(event["result"] for event in ends if event["rank"] == self._rank)

    def _verdict(self) -> CourseError:
        """Why the run failed, once the other ranks have had time to say so too; the first to know records it."""
        time.sleep(GRACE_SECONDS)
        ranks = Ranks(self.config.world_size)
        for rank in range(self.config.world_size):
            if self.folder.error(rank).exists():
                ranks.note({"is": "exit", "rank": rank, "code": EXIT_FAILED})
        ranks.note({"is": "exit", "rank": self._rank, "code": self._exit_code})
        error = _because_of_another(self.folder, ranks) or verdict(self.folder, ranks)
        assert error is not None
        if not self.folder.failure.exists():
            with contextlib.suppress(OSError):  # on a full disk it is still raised
                self.folder.write_failure(error)
        return error

    def stop(self) -> None:
        """The run is over already."""

    def events(self) -> list[dict[str, Any]]:
        """What the ranks reported since the last call."""
        return self._reader.read_new()

    def log(self, rank: int = 0) -> str:
        """Nothing: torchrun has what the ranks print."""
        return ""


def join(config: RunConfig, make_folder: Callable[[], RunFolder], images: int, resume_from: str | None) -> JoinedRun:
    """Run as the rank that torchrun made this process; returns when its function has.

    Args:
        config: as `as_started` gave it.
        make_folder: makes the run's folder; rank 0 calls it and tells the others where it is.
        images: how many images an epoch of the training set has.
        resume_from: the folder of a run to go on from.

    Raises:
        FolderError: rank 0 could not make the folder.
    """
    # Imported here because it takes seconds, and a launcher whose ranks are other processes goes without.
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    from course_lib.runs.worker import run_rank

    place = _place(config)
    if config.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", devices.loopback())
    store, _, _ = next(rendezvous("env://"))
    # A script may launch several runs: each has a number, the same on all ranks.
    number = store.add(f"ddp-course/launches/{place.rank}", 1)
    key = f"ddp-course/run/{number}"
    with contextlib.ExitStack() as held:
        if place.rank == 0:
            try:
                folder = make_folder()
                meeting = "env://" if number == 1 else _new_meeting()
            except CourseError as error:
                store.set(key, f"error {error}")
                raise
            held.enter_context(FileLock(folder.launcher_lock))
            held.callback(Measuring(folder, devices.speed_caveats(_places_on_this_node(config))).end)
            store.set(key, f"{meeting} {folder.path}")
        else:
            meeting, _, told = store.get(key).decode().partition(" ")
            if meeting == "error":
                raise FolderError(told)
            folder = RunFolder(told)
            if not folder.path.is_dir():
                raise FolderError(f"This node does not see {told}, which rank 0 made. All nodes must share it (--out).")
        with _hosting_its_own_store(meeting):
            code = run_rank(str(folder.path), place.meeting_at(meeting), resume_from)
        if code == EXIT_FINISHED and dist.is_initialized():
            # Together: a rank that leaves early breaks the connections of the others. What happens
            # here no longer matters, since the result is recorded.
            with contextlib.suppress(RuntimeError):
                dist.barrier()
                dist.destroy_process_group()
    if place.rank == 0:
        folder.launcher_lock.unlink(missing_ok=True)
    return JoinedRun(config, folder, images, place, code)


def _because_of_another(folder: RunFolder, ranks: Ranks) -> CourseError | None:
    """The error of a run in which all ranks that failed did so because of one that said nothing, or None.

    Where that one is, or how it ended, torchrun knows and we do not.
    """
    said = {rank: read_json(folder.error(rank)) for rank in ranks.exits if folder.error(rank).exists()}
    silent = [rank for rank in range(ranks.world_size) if rank not in ranks.exits]
    if not silent or len(said) < len(ranks.exits) or not all(each["from_peer"] for each in said.values()):
        return None
    waited = {rank: each for rank, each in said.items() if each["timed_out"]}
    first = min(waited or said, key=lambda rank: said[rank]["time"])
    who = f"Rank {first} of {ranks.world_size}"
    other = f"rank {silent[0]}" if len(silent) == 1 else f"one of the ranks {', '.join(map(str, silent))}"
    if waited:
        return HangError(
            f"{who} waited in a collective to which {other} did not come, so the run was stopped. Every rank must call "
            "the same collectives in the same order: look for one inside `if rank == ...`, or for loops of different "
            "length. If a rank was only slow, raise collective_timeout. To hear where each rank was, launch the run "
            f"without torchrun.\n\nRank {first} waited here:\n{said[first]['traceback']}"
        )
    return RankError(
        f"{who} lost its connection to {other}, which ended without saying why. What torchrun prints about it tells "
        f"more: exit code -9 is a kill, as the system does when memory runs out. Where rank {first} was then:",
        silent[0],
        said[first]["traceback"],
    )


def _places_on_this_node(config: RunConfig) -> list[Place]:
    return devices.place_ranks(config.with_(num_nodes=1))


def _place(config: RunConfig) -> Place:
    rank, local_rank = _number("RANK"), _number("LOCAL_RANK")
    on_this_node = _places_on_this_node(config)[local_rank]
    return Place(
        rank=rank,
        world_size=config.world_size,
        local_rank=local_rank,
        local_world_size=config.num_gpus,
        node_rank=rank // config.num_gpus,
        device=on_this_node.device,
        backend=on_this_node.backend,
        threads=config.threads_per_rank,
    )


@contextlib.contextmanager
def _hosting_its_own_store(meeting: str) -> Iterator[None]:
    """Have rank 0 host the store of a meeting that is not torchrun's; torch expects the agent to, otherwise."""
    agents = os.environ.pop(AGENT_STORE, None) if meeting != "env://" else None
    try:
        yield
    finally:
        if agents is not None:
            os.environ[AGENT_STORE] = agents


def _new_meeting() -> str:
    """Where the ranks of a second run meet: torchrun's own place still holds the addresses of the first."""
    with socket.socket() as free:
        free.bind(("", 0))
        return f"tcp://{os.environ['MASTER_ADDR']}:{free.getsockname()[1]}"


def _number(variable: str) -> int:
    return int(os.environ[variable])
