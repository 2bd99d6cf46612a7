"""Books, findings, movements by hand, mail and budgets over HTTP."""

from __future__ import annotations

from ledger.services import reconciliation
from tests.http.conftest import Api
from tests.support.market import START


def test_a_statement_is_one_s_own(api: Api) -> None:
    """Opening and lines are the closing balance; somebody else's account is not found."""
    found = api("alice", "GET", "/v1/account-statement").json()
    assert (found["opening"], found["closing"]) == ("0", "100")
    assert [line["kind"] for line in found["items"]] == ["deposit"]
    other = api("alice", "GET", f"/v1/account-statement?account_id={api.accounts['carol']}")
    assert other.status_code == 404
    seen = api("audrey", "GET", f"/v1/account-statement?account_id={api.accounts['carol']}")
    assert seen.json()["closing"] == "100"


def test_the_general_ledger_is_paged(api: Api) -> None:
    """Pages of one line are the whole ledger, as of an instant too."""
    whole = api("audrey", "GET", "/v1/general-ledger/bank").json()
    assert whole["closing"] == "600"
    items, cursor = [], None
    while True:
        more = "" if cursor is None else f"&cursor={cursor}"
        one = api("audrey", "GET", f"/v1/general-ledger/bank?limit=1{more}").json()
        items += one["items"]
        cursor = one["next_cursor"]
        if cursor is None:
            break
    assert items == whole["items"]
    before = api("audrey", "GET", "/v1/general-ledger/bank?as_of=2026-03-01T09:00:00Z")
    assert (before.json()["closing"], before.json()["items"]) == ("0", [])
    assert api("audrey", "GET", "/v1/general-ledger/petty_cash").status_code == 404


def test_balances_as_of_an_instant_balance(api: Api) -> None:
    """The trial balance of an instant has no difference, and one balance per person."""
    dated = api("audrey", "GET", "/v1/trial-balance?as_of=2026-03-01T10:00:00Z").json()
    assert dated["difference"] == "0"
    rows = api("audrey", "GET", "/v1/book-balances").json()["items"]
    assert {row["journal_account"] for row in rows} >= {"Liabilities:RenterCredit:Account1"}
    assert len(rows) == 7


def test_an_adjustment_needs_a_second_admin_above_its_limit(api: Api) -> None:
    """$100 alone, a cent more with an approval; renters see their own and cannot make any."""
    body = {"id": "t-1", "account_id": api.accounts["alice"], "amount": "100.01", "reason": "x"}
    refused = api("root", "POST", "/v1/adjustments", body)
    assert (refused.status_code, refused.json()["code"]) == (422, "second_approval_required")
    small = api("root", "POST", "/v1/adjustments", {**body, "amount": "-0.5"})
    assert (small.status_code, small.json()["amount"]) == (201, "-0.5")
    again = api("root", "POST", "/v1/adjustments", {**body, "amount": "-0.5"})
    assert again.json() == small.json()
    listed = api("alice", "GET", "/v1/adjustments").json()["items"]
    assert [one["adjustment_id"] for one in listed] == ["t-1"]
    assert api("carol", "GET", "/v1/adjustments").json()["items"] == []
    kinds = [one["topic"] for one in api("root", "GET", "/v1/events?limit=1000").json()["items"]]
    assert kinds.count("account.adjusted.v1") == 1


def test_a_debt_is_written_off(api: Api) -> None:
    """What an account owes is given up by an admin; an account that owes nothing is refused."""
    alice = api.accounts["alice"]
    nothing = api("root", "POST", "/v1/write-offs", {"id": "w", "account_id": alice, "reason": "x"})
    assert (nothing.status_code, nothing.json()["code"]) == (422, "no_debt")
    taken = {"id": "t", "account_id": alice, "reason": "x"}
    for number, amount in enumerate(("-99.5", "-1.25")):
        api("root", "POST", "/v1/adjustments", {**taken, "id": f"t{number}", "amount": amount})
    done = api("root", "POST", "/v1/write-offs", {"id": "w", "account_id": alice, "reason": "x"})
    assert (done.status_code, done.json()["amount"]) == (201, "0.75")


def test_findings_are_listed_and_explained(api: Api) -> None:
    """Auditors see what was found; an admin says why."""
    with api.market.ledger.database.connect("owner", autocommit=True) as owner:
        owner.execute("UPDATE account_credit SET payable = 1 WHERE account_id = 1")
    reconciliation.run(api.market.ledger, "money", START // 86_400 * 86_400)
    (one,) = api("audrey", "GET", "/v1/findings?state=open").json()["items"]
    assert (one["kind"], one["about"], one["expected"], one["actual"]) == (
        "payable", "account-1", 0, 1,
    )  # fmt: skip
    path = f"/v1/findings/{one['finding_id']}"
    explained = api("root", "POST", f"{path}/explain", {"reason": "planted"})
    assert explained.json()["state"] == "explained"
    assert api("audrey", "GET", path).json()["reason"] == "planted"
    corrected = api("root", "POST", f"{path}/correct", {"reason": "put right"})
    assert corrected.json()["state"] == "corrected"
    assert api("root", "POST", "/v1/findings/99/explain", {"reason": "x"}).status_code == 404
    (run,) = api("audrey", "GET", "/v1/reconciliations?job=money").json()["items"]
    assert (run["found"], run["opened"]) == (1, 1)


def test_mail_is_a_choice_of_its_account(api: Api) -> None:
    """An address is set, shown to its owner and not to auditors, and forgotten again."""
    assert api("alice", "GET", "/v1/mail").json()["code"] == "no_mail"
    body = {"address": "alice@mail.example", "codes": ["outbid"]}
    assert api("alice", "PUT", "/v1/mail", body).json()["codes"] == ["outbid"]
    assert api("alice", "GET", "/v1/mail").json()["address"] == "alice@mail.example"
    seen = api("audrey", "GET", f"/v1/mail?account_id={api.accounts['alice']}").json()
    assert seen["address"] is None
    bad = api("alice", "PUT", "/v1/mail", {"address": "nobody"})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid_address")
    assert api("alice", "POST", "/v1/mail/messages/evt_1/resend").status_code == 404
    assert api("alice", "GET", "/v1/mail/messages?state=dead").json()["items"] == []
    assert api("alice", "DELETE", "/v1/mail").status_code == 200
    assert api("alice", "GET", "/v1/mail").status_code == 404


def test_budgets_are_set_listed_and_removed(api: Api) -> None:
    """A budget stands with what was spent; charges by label begin empty."""
    body = {"label": "train", "amount": "250"}
    made = api("alice", "PUT", "/v1/budgets", body).json()
    assert (made["amount"], made["spent"]) == ("250", "0")
    assert api("alice", "GET", "/v1/budgets").json()["items"] == [made]
    assert api("carol", "GET", "/v1/budgets").json()["items"] == []
    assert api("alice", "DELETE", "/v1/budgets?label=train").status_code == 200
    assert api("alice", "GET", "/v1/budgets").json()["items"] == []
    assert api("alice", "GET", "/v1/charges/by-label").json()["items"] == []
