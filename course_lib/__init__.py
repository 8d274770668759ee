"""From one GPU to many: a course on data-parallel training, and the software under it."""

__version__ = "0.1.0"
