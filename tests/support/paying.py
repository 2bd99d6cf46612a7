"""A process that asks the processor for what is open, once: one that tests can kill.

    python -m tests.support.paying DATABASE STRIPE-URL SECOND

It prints ``done`` when its run is over.
"""

from __future__ import annotations

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
    """Do one run."""
    dsn, url, second = sys.argv[1:]
    clock = SimulatedClock(int(second))
    ledger = Ledger(Database.open(None, dsn), Vault(bytes(32)), clock)
    settings = StripeSettings(API_KEY, (SECRET,), RETURN_URL, url)
    payouts.pay_hosts(ledger)
    policies.pay(ledger, StripeGateway(settings, LEDGER, clock))
    ledger.close()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
