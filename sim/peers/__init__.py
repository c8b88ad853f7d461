"""Worlds that others wrote, behind the face that collection and evaluation use."""
