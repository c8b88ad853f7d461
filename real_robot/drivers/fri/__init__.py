"""KUKA's Fast Robot Interface (FRI): joint positions of an LBR arm over UDP, in the controller's own beat."""
