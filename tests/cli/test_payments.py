"""`gpuledger payments`: list, show, and hear again what was lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from adapters.cli import main as cli
from adapters.main import payment_gateway
from adapters.payments.settings import (
    KEY_VARIABLE,
    RETURN_VARIABLE,
    SECRETS_VARIABLE,
    URL_VARIABLE,
)
from ledger.services import accounts
from ledger.services.ledger import Ledger
from ledger.services.payments import orders, runner
from tests.support.databases import Server
from tests.support.stripe.server import API_KEY, StripeServer


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code and both outputs of one command line."""
    code = cli.run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_resync_hears_what_was_lost_and_show_shows_it(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A page was paid while nobody listened: resync books it once, list and show tell of it."""
    dsn = server.copy()
    began = int(time.time())
    with StripeServer(lambda: int(time.time())) as stripe:
        for name, value in (
            (KEY_VARIABLE, API_KEY),
            (SECRETS_VARIABLE, "whsec_standin"),
            (RETURN_VARIABLE, "https://market.example"),
            (URL_VARIABLE, stripe.url),
            ("GPULEDGER_DATABASE_URL", dsn),
            ("GPULEDGER_HOME", str(tmp_path)),
        ):
            monkeypatch.setenv(name, value)
        ledger = Ledger.open(tmp_path)
        ledger.adopt_policy()
        with ledger.unit() as unit:
            alice = accounts.ensure_account(unit, "alice")
            payment_id = orders.order_payment(unit, alice, 50 * 10**9)
        gateway = payment_gateway(ledger)
        assert gateway is not None
        runner.run(ledger, gateway)
        stripe.account.complete(next(iter(stripe.account.found["checkout.session"])))
        ledger.close()
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began - 5))
        for _ in range(2):
            code, out, _ = run(capsys, "payments", "resync", "--since", since)
            assert (code, "0 failed" in out) == (0, True)
        code, out, _ = run(capsys, "payments", "list", "--json")
        listed = json.loads(out)
        assert [(one["payment_id"], one["status"], one["total"]) for one in listed] == [
            (payment_id, "settled", "50")
        ]
        code, out, _ = run(capsys, "payments", "show", payment_id)
        assert (code, "settled" in out, "refunds" in out) == (0, True, False)
        code, _, err = run(capsys, "payments", "show", "pay-99")
        assert (code, "gpuledger payments list" in err) == (1, True)
        code, out, _ = run(capsys, "balance", "alice", "--json")
        assert json.loads(out)["available"] == "50"
        future = "2100-01-01T00:00:00Z"
        assert run(capsys, "payments", "resync", "--since", future)[0] == 2
        monkeypatch.delenv(KEY_VARIABLE)
        code, _, err = run(capsys, "payments", "resync", "--since", since)
        assert (code, KEY_VARIABLE in err) == (1, True)
    server.drop(dsn)
