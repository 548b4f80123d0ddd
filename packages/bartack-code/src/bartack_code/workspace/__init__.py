"""The directory that an agent works in: mentions, attachments, instructions, changes to files and checkpoints."""
