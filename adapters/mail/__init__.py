"""Sends notices by mail: `settings` from the environment, `smtp` an attempt, `sender` the loop."""
