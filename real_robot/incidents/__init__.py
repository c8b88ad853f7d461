"""The flight recorder: a ring in shared memory, files, and their reader."""
