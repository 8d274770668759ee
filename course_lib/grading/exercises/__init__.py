"""The exercises, in their order; a module ex… holds one, with its checks; the others hold the laws of one."""

from course_lib.grading.exercises import (
    ex01_deal,
    ex02_average,
    ex03_ring,
    ex04_program,
    ex05_metrics,
    ex06_learning_rate,
    ex07_speedup,
    ex08_two_nodes,
    ex09_accumulation,
    ex10_resume,
    ex11_clinic,
    ex12_project,
)

EXERCISES = (
    ex01_deal.EXERCISE,
    ex02_average.EXERCISE,
    ex03_ring.EXERCISE,
    ex04_program.EXERCISE,
    ex05_metrics.EXERCISE,
    ex06_learning_rate.EXERCISE,
    ex07_speedup.EXERCISE,
    ex08_two_nodes.EXERCISE,
    ex09_accumulation.EXERCISE,
    ex10_resume.EXERCISE,
    ex11_clinic.EXERCISE,
    ex12_project.EXERCISE,
)
