"""Action chunks: timestamped actions, and the prefix of a chunk that is already decided."""
