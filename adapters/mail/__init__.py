"""Sends notices by mail: `settings` from the environment, `smtp` makes one attempt, `sender` loops."""
