"""Small widgets for lessons, each on its own: the last line of a cell."""

from course_lib.lab.widgets.averaging import GradientAveraging
from course_lib.lab.widgets.batchnorm import BatchNormViewer
from course_lib.lab.widgets.buckets import BucketTimeline
from course_lib.lab.widgets.ring import RingAllReduce
from course_lib.lab.widgets.schedule import ScheduleViewer
from course_lib.lab.widgets.shards import ShardViewer

__all__ = [
    "BatchNormViewer",
    "BucketTimeline",
    "GradientAveraging",
    "RingAllReduce",
    "ScheduleViewer",
    "ShardViewer",
]
