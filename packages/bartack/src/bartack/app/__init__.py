"""What all user interfaces share: settings, agent set-up, the choice of store and session, attachments, the JSON of
events, and messages about errors, runs and usage.

The command line uses it, and so does any other front end. Nothing here imports typer, rich or prompt_toolkit.
"""
