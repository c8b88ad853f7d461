"""Action chunks: timestamped actions and action prefixes."""
