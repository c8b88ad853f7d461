"""The interface of all drivers: driver, gripper, interlocks, and the command that they accept."""
