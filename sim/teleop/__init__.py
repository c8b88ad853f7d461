"""Steering the arms of a simulated world by hand, from a web page or a gamepad, and recording it."""
