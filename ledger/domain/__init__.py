"""The rules of the business: pure functions and values without clock, I/O, SQL or framework."""
