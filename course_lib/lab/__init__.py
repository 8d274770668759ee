"""What people see of their runs: plots, the live view, the report."""
