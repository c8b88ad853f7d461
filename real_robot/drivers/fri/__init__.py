"""KUKA's Fast Robot Interface (FRI): positions of LBR arms over UDP, clocked by the controller."""
