"""The operator's interface: checklist, keys and status line."""
