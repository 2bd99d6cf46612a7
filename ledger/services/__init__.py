"""Use cases: load, decide, append; and the policies that act by themselves."""
