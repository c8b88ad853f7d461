"""The part of the drivers of KUKA's LBR arms that does not depend on their protocol."""
