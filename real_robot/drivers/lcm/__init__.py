"""LCM as drake-iiwa-driver and drake-schunk-driver speak it, read and written without the library."""
