"""Transcripts on disk: where programs keep them, how they are read, and how they are stored as sessions."""
