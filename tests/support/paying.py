"""Processes that ask the processor for what is open, once each: ones that tests can kill.

    python -m tests.support.paying

For each line of standard input (DATABASE STRIPE-URL SECOND, with tabs between) a process is forked,
which is quicker than starting one. It prints its process id, and ``done`` when its run is over; the
last line is the exit code of the process.
"""

from __future__ import annotations

import os
import sys

from adapters.payments.settings import StripeSettings
from adapters.payments.stripe_gateway import StripeGateway
from ledger.services import policies
from ledger.services.ledger import Ledger, SimulatedClock
from ledger.services.policies import payouts
from ledger.store.database import Database
from ledger.store.vault import Vault
from tests.support.processors import LEDGER, RETURN_URL
from tests.support.stripe.messages import SECRET
from tests.support.stripe.server import API_KEY


def main() -> None:
    """Fork for each line until there are no more."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _say(f"{os.getpid()}\n")
            _pay(*line.rstrip("\n").split("\t"))
            _say("done\n")
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        _say(f"{os.waitstatus_to_exitcode(status)}\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _pay(dsn: str, url: str, second: str) -> None:
    """Do one run."""
    clock = SimulatedClock(int(second))
    ledger = Ledger(Database.open(None, dsn), Vault(bytes(32)), clock)
    settings = StripeSettings(API_KEY, (SECRET,), RETURN_URL, url)
    payouts.pay_hosts(ledger)
    policies.pay(ledger, StripeGateway(settings, LEDGER, clock))
    ledger.close()


if __name__ == "__main__":
    main()
