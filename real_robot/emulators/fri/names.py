"""Names of inputs and outputs in the emulated controllers' project."""

GRIPPER_OUTPUT, GRIPPER_INPUT = "Gripper.Opening", "Gripper.MeasuredOpening"
