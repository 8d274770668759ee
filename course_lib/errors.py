"""Every error that the course raises on purpose.

CourseError                     anything below; `exit_code` is what the command line ends with
├── UsageError                  what was asked for cannot be done (exit code 2)
│   ├── ConfigError             a field of RunConfig, or several that do not go together
│   ├── DeviceError             a device that is not there, or more of them than exist
│   ├── FunctionError           a training function that cannot be sent to the ranks
│   ├── FolderError             a folder that cannot be written, or that holds no readable run
│   ├── FitError                a table that a scaling model cannot be fitted to, or predict for
│   ├── CollectiveError         tensors that a collective cannot take together
│   └── BatchError              a batch that cannot be dealt to replicas
├── DataError                   the data set is missing, truncated or not what it should be
├── ReplicaError                a replica of a model failed, or replicas do not fit together
├── ComparisonError             two runs that differ in more than what is being varied
├── GradingError                 what judges students' code does not work, which is no fault of theirs
└── RunError                    a run that was started and did not finish
    ├── LaunchError             the ranks could not be started, or the process that starts them died
    ├── RankError               a rank failed; carries its number and its traceback
    ├── HangError               a rank did not join a collective, or the run passed its time limit
    ├── RunStopped              somebody stopped the run
    ├── ReportError             a rank reported or returned something that cannot be recorded
    ├── WriteError              what a rank recorded could not be written
    │   └── DiskFullError       because no space is left
    ├── NonFiniteLossError      the loss became infinite or not a number
    └── OutOfSyncError          the ranks' weights are no longer the same
"""

from __future__ import annotations


class CourseError(Exception):
    """Base of every error that the course raises on purpose."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message says where and what to do, and the caller's stack adds nothing."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(CourseError):
    """What was asked for cannot be done; nearly always it is said before anything was started.

    Attributes:
        field: the field of what was asked for that is wrong, such as "batch_size"; None where it is not a single one.
    """

    exit_code = 2

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(UsageError):
    """A field of RunConfig is wrong, or several do not go together."""


class DeviceError(UsageError):
    """A device that is not there, or more of them than exist."""


class FunctionError(UsageError):
    """The training function cannot be sent to the ranks."""


class FolderError(UsageError):
    """A folder cannot be written, or holds no readable run."""


class FitError(UsageError):
    """A scaling model cannot be fitted to a table, or predict for one."""


class CollectiveError(UsageError):
    """Tensors do not fit together, or a collective cannot do such a thing with them."""


class BatchError(UsageError):
    """A batch cannot be dealt to replicas."""


class DataError(CourseError):
    """The data set is missing, truncated or not what it should be."""


class ReplicaError(CourseError):
    """A replica of a model failed, or replicas do not fit together."""


class ComparisonError(CourseError):
    """Two runs differ in more than what is being varied."""


class GradingError(CourseError):
    """What judges students' code does not work; nothing was judged."""


class RunError(CourseError):
    """A run was started and did not finish."""


class LaunchError(RunError):
    """The ranks could not be started, or the process that starts them died."""


class RankError(RunError):
    """A rank failed.

    Attributes:
        rank: the first rank to fail.
        traceback: its traceback as text; empty if the rank was killed.
    """

    def __init__(self, message: str, rank: int, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.traceback = traceback

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n\n{self.traceback}" if self.traceback else message


class HangError(RunError):
    """A rank did not join a collective, or the run passed its time limit."""


class RunStopped(RunError):
    """Somebody stopped the run."""


class ReportError(RunError):
    """A rank reported or returned something that cannot be recorded."""


class WriteError(RunError):
    """What a rank recorded could not be written."""


class DiskFullError(WriteError):
    """What a rank recorded could not be written, because no space is left."""


class NonFiniteLossError(RunError):
    """The loss became infinite or not a number."""


class OutOfSyncError(RunError):
    """The ranks' weights are no longer the same."""
