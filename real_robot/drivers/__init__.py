"""Drivers: the only modules that open a port to hardware, and the face that all of them share."""
