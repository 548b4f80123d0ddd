"""What a person sees of a run: one reader turns events and stored entries into `Change`s, which every window draws."""
