"""Emulated Dynamixel servos on pseudo-terminals: ALOHA's followers and leaders."""
