"""Grippers with a wire of their own, without the hardware: the fingers of an emulated cell are what they move."""
