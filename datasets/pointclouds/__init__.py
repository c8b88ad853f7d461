"""Point clouds from depth images, and the check of camera extrinsics."""
