"""Dynamixel servos over protocol 2.0, and the ALOHA arms built from them."""
