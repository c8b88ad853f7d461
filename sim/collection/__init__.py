"""Collection of demonstrations: its state on disk, the recording of an episode, disturbances."""
