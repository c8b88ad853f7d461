"""Messages of LCM as drake-iiwa-driver and its gripper driver speak them, read and written without the library."""
