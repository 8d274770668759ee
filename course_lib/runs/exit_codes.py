"""What the process of a rank ends with.

None is a code that programs end with by themselves, so sys.exit or os._exit in a training function
is never taken for success.
"""

EXIT_FINISHED, EXIT_FAILED = 80, 81
# The rank could not even record how it failed.
EXIT_DISK_FULL, EXIT_CANNOT_WRITE = 82, 83
