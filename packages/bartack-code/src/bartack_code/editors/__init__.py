"""The agent inside editors that speak the Agent Client Protocol."""
