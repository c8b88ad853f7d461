"""Teleoperation in simulation: a page in the browser, a gamepad, and the recording of takes."""
