"""KUKA's Fast Robot Interface (FRI): joint positions of an LBR arm over UDP, clocked by the controller."""
