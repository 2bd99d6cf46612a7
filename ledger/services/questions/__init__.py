"""What people ask: one read model, one query, one answer.

Every function takes an open connection and returns frozen structs; amounts are nanos, rates nanos
per unit, instants Unix seconds. Lists are paged by key (`after`, `limit`), so a page never repeats
or skips a row while new ones arrive.
"""
