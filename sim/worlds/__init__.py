"""Worlds by name: tasks of this project, third-party environments, and tasks of the user."""
