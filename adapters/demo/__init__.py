"""The product at work in half a minute: one server, three hosts, renters, and proven books."""

from adapters.demo.show import run

__all__ = ["run"]
