"""The plots of the course: a frame of `runs.store` in, a matplotlib Figure out.

    speedup, efficiency, throughput                        one row a run, over the number of ranks
    time_split, heat_map                                   one row a run
    accuracy_against_epoch, accuracy_against_seconds       one row an epoch
    loss_against_step, timeline                            one row a step
    predicted_throughput, predicted_step                   one row a prediction, over the number of GPUs
    time_to_accuracy, epochs_to_target, noise_scale        over GPUs, batch sizes and steps: what scaling/ returns

Of data parallelism by hand there are `replica_timeline`, from the times of its steps, and `collective_costs`.

No function keeps state, uses pyplot or changes its frame. Runs that did not finish are left out,
what was measured and what was simulated or predicted is never joined by a line, and what is no speed
measurement is drawn hollow. `alt_text` says in words and figures what a figure shows.
"""

from course_lib.lab.plots.heat_map import heat_map
from course_lib.lab.plots.learning_plots import accuracy_against_epoch, accuracy_against_seconds, loss_against_step
from course_lib.lab.plots.prediction_plots import predicted_step, predicted_throughput
from course_lib.lab.plots.replica_plots import collective_costs, replica_timeline
from course_lib.lab.plots.scaling_plots import efficiency, speedup, throughput
from course_lib.lab.plots.target_plots import epochs_to_target, noise_scale, time_to_accuracy
from course_lib.lab.plots.time_plots import time_split, timeline
from course_lib.lab.style import alt_text

__all__ = [
    "accuracy_against_epoch",
    "accuracy_against_seconds",
    "alt_text",
    "collective_costs",
    "efficiency",
    "epochs_to_target",
    "heat_map",
    "loss_against_step",
    "noise_scale",
    "predicted_step",
    "predicted_throughput",
    "replica_timeline",
    "speedup",
    "throughput",
    "time_split",
    "time_to_accuracy",
    "timeline",
]
