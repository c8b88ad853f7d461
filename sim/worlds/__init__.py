"""Worlds by name: our tasks, third-party environments, and modules of the user."""
