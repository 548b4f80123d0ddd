"""Bytes to deltas: one file per wire format, on top of the framings."""
