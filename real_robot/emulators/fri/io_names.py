"""Names of inputs and outputs in the emulated controllers' project."""

GRIPPER_OUTPUT, GRIPPER_INPUT = "Gripper.Opening", "Gripper.MeasuredOpening"
# The same gripper by a valve, with a bit for each way.
GRIPPER_OPEN, GRIPPER_CLOSE, GRIPPER_IS_OPEN = "Gripper.Open", "Gripper.Close", "Gripper.IsOpen"
