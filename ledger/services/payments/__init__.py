"""Payments through a processor: the port, what people order, what is booked, and who keeps asking.

`gateway` is the port. `orders` and `returns` decide; `runner` asks the processor for what is open;
`booking` turns what the processor says into facts; `inbox` takes its messages; `entries` books its
own account of the money; `reconcile` compares both sides.
"""
