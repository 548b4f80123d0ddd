"""Nouns: the immutable values that everything else produces and consumes, their state tables, and their JSON."""
