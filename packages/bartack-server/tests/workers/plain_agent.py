"""The agent of the worker processes in the tests: it answers at once."""

from bartack import ScriptedModel
from bartack.agent import Agent

agents = [Agent(ScriptedModel(["Fine."] * 100), name="a")]
