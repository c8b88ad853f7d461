"""Environments in an interpreter of their own: their server, MetaWorld's tasks, their process."""
