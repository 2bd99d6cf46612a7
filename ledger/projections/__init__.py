"""Read models: what the log says, folded into tables that can be thrown away and rebuilt.

Two groups follow the log. The *facts* group is folded in the transaction of the command itself, so
that a command's effect can be read back at once. The *usage* group is folded in pages behind the
log. `tables.py` names every table and its group.
"""
