"""Drivers: the only modules that open a port to hardware."""
