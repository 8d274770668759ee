"""What people see of their runs.

    plots/      figures of runs, of predictions, and of data parallelism by hand
    explain/    why a run was not faster, and why its accuracy moved
    panel/      the Scaling Lab
    widgets/    small widgets for lessons
    watch.py    the live view of a notebook
    report.py   one HTML file on a run or on many

The other modules are what these share.
"""
