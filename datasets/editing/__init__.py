"""Editing: changes to a store, and new stores made from others."""
