"""The acting half of the agent: it moves the machine towards what is wanted, and tells what was."""
