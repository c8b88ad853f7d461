"""Emulated grippers with a connection of their own."""
