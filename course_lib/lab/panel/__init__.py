"""The Scaling Lab: the whole experiment in one cell, without code."""

from course_lib.lab.panel.scaling_lab import ScalingLab

__all__ = ["ScalingLab"]
