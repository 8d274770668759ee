"""Exercise 12: the final project. A new model and a new loss, from one device to many."""

from __future__ import annotations

from course_lib.grading.exercises import project
from course_lib.grading.exercises.project import holds
from course_lib.grading.parts import Check, Exercise, Part

CELLS, NAMES = ("project",), ("main",)
PARTS = (
    Part(
        "12.1",
        "Equal to one process",
        CELLS,
        (
            Check("all ranks are one group, and come to an end", 1, holds(project.joined)),
            Check("each sequence goes to one rank, anew in each epoch", 2, holds(project.dealt)),
            Check("each step is that of one process with all tokens of the batch", 4, holds(project.as_one)),
        ),
        (
            "Begin with what you know: the group, the sampler, DDP. Then look at the loss: over what is it the mean?",
            "Two ranks with as many sequences have different numbers of tokens. What is the mean of their means?",
            "Sum the losses of tokens, and divide by the number of tokens of *all* ranks. DDP divides by ranks, too.",
        ),
        NAMES,
    ),
    Part(
        "12.2",
        "Efficient",
        CELLS,
        (
            Check("each rank does its share of the work", 2, holds(project.shared_work)),
            Check("the ranks exchange little more than the gradient, in few messages", 2, holds(project.few_messages)),
        ),
        (
            "The batch size is that of all ranks together. And who evaluates?",
            "Count the calls of collectives in a step. DDP needs one for a model of this size.",
            "One number a step tells how many tokens there are; two an epoch are enough for the accuracy.",
        ),
        NAMES,
    ),
    Part(
        "12.3",
        "Accurate",
        CELLS,
        (
            Check("all ranks know the accuracy over all tokens", 3, holds(project.right_accuracy)),
            Check("one rank writes the model, for a program without DDP", 2, holds(project.one_file)),
        ),
        (
            "Over what is an accuracy a mean here?",
            "Add up what was correct and how many tokens there were, on all ranks.",
            "A share of the validation set for each rank, without filling up; `all_reduce` brings the sums to all.",
        ),
        NAMES,
    ),
)
EXERCISE = Exercise("12_final_project", "Final project", PARTS)
