"""Emulated grippers with a wire of their own."""
