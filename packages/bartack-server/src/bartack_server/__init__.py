"""Runs for many viewers: the web page and its API (`web`), and the workers that execute queued runs (`workers`)."""
