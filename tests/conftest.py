"""What holds for all tests."""

import os

# Tests run in several processes; threads that wait for each other's processors would make each of them slower.
os.environ["OMP_NUM_THREADS"] = "1"
