"""`bartack run`: one prompt, its answer on stdout, for scripts."""
