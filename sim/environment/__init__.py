"""The gymnasium environment of a task: observations, cameras, clock and registration."""
