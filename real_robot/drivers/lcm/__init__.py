"""LCM with the messages of drake-iiwa-driver and drake-schunk-driver, without its library."""
