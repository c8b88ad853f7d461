"""Names of inputs and outputs in the emulated controllers' project."""

GRIPPER_OUTPUT = "Gripper.Opening"
GRIPPER_INPUT = "Gripper.MeasuredOpening"
# The same gripper by a valve, with a bit for each way.
GRIPPER_OPEN = "Gripper.Open"
GRIPPER_CLOSE = "Gripper.Close"
GRIPPER_IS_OPEN = "Gripper.IsOpen"
