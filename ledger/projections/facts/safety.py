"""What protects renters: what those facts change."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain import events as e
from ledger.domain.payment import top_up_id
from ledger.projections.facts.change import Change
from ledger.projections.facts.payments import (
    payment_failed,
    payment_ordered,
    payment_settled,
    tax_paid,
)


def safety_changes(fact: e.SafetyFact, position: int) -> Iterator[Change]:
    """The rules that an account set for itself, and what was told or done because of them."""
    match fact:
        case e.SpendCapsSet():
            yield Change(
                "INSERT INTO spend_caps (account_id, per_hour, per_day, hard, set_at)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (account_id) DO UPDATE SET"
                " per_hour = EXCLUDED.per_hour, per_day = EXCLUDED.per_day,"
                " hard = EXCLUDED.hard, set_at = EXCLUDED.set_at",
                (fact.account_id, fact.per_hour, fact.per_day, fact.hard, fact.set_at),
            )
        case e.DayCapReached():
            yield Change(
                "UPDATE spend_caps SET reached_day = %s, reached_cap = %s WHERE account_id = %s",
                (fact.day_from, fact.cap, fact.account_id),
            )
        case e.BalanceAlertRaised():
            yield Change(
                "INSERT INTO balance_alerts VALUES (%s, %s, %s, NULL)"
                " ON CONFLICT (account_id, alert) DO UPDATE SET"
                " raised_at = EXCLUDED.raised_at, cleared_at = NULL",
                (fact.account_id, fact.alert, fact.raised_at),
            )
        case e.BalanceAlertCleared():
            yield Change(
                "UPDATE balance_alerts SET cleared_at = %s WHERE account_id = %s AND alert = %s",
                (fact.cleared_at, fact.account_id, fact.alert),
            )
        case e.LeaseSet():
            yield Change(
                "INSERT INTO instance_leases VALUES (%s, %s, %s, %s, %s, NULL)"
                " ON CONFLICT (instance_id) DO UPDATE SET until = EXCLUDED.until,"
                " spend_limit = EXCLUDED.spend_limit, set_at = EXCLUDED.set_at, ended_at = NULL",
                (fact.instance_id, fact.account_id, fact.until, fact.spend_limit, fact.set_at),
            )
        case e.LeaseEnded():
            yield Change(
                "UPDATE instance_leases SET ended_at = %s WHERE instance_id = %s",
                (fact.ended_at, fact.instance_id),
            )
        case e.IdlePolicySet() | e.IdleNoticed():
            yield _idle(fact)
        case (
            e.CleanupPolicySet()
            | e.CleanupAnnounced()
            | e.CleanupWithdrawn()
            | e.CleanupDestroyed()
        ):
            yield _cleanup(fact)
        case _:
            yield from _top_up(fact, position)


def _idle(fact: e.IdlePolicySet | e.IdleNoticed) -> Change:
    if isinstance(fact, e.IdlePolicySet):
        return Change(
            "INSERT INTO idle_policies VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (account_id) DO UPDATE SET notice_seconds = EXCLUDED.notice_seconds,"
            " stop_seconds = EXCLUDED.stop_seconds, set_at = EXCLUDED.set_at",
            (fact.account_id, fact.notice_seconds, fact.stop_seconds, fact.set_at),
        )
    return Change(
        "INSERT INTO idle_notices VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (instance_id) DO UPDATE SET idle_from = EXCLUDED.idle_from,"
        " number = EXCLUDED.number, noticed_at = EXCLUDED.noticed_at",
        (fact.instance_id, fact.idle_from, fact.number, fact.noticed_at),
    )


_CleanupFact = e.CleanupPolicySet | e.CleanupAnnounced | e.CleanupWithdrawn | e.CleanupDestroyed


def _cleanup(fact: _CleanupFact) -> Change:
    match fact:
        case e.CleanupPolicySet():
            return Change(
                "INSERT INTO cleanup_policies VALUES (%s, %s, %s, %s, %s)"
                " ON CONFLICT (account_id) DO UPDATE SET scope = EXCLUDED.scope,"
                " days = EXCLUDED.days, label = EXCLUDED.label, set_at = EXCLUDED.set_at",
                (fact.account_id, fact.scope, fact.days, fact.label, fact.set_at),
            )
        case e.CleanupAnnounced():
            return Change(
                "INSERT INTO cleanup_announcements VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (instance_id) DO UPDATE SET destroy_at = EXCLUDED.destroy_at,"
                " announced_at = EXCLUDED.announced_at",
                (fact.instance_id, fact.account_id, fact.destroy_at, fact.announced_at),
            )
        case e.CleanupWithdrawn() | e.CleanupDestroyed():
            return Change(
                "DELETE FROM cleanup_announcements WHERE instance_id = %s", (fact.instance_id,)
            )


_TopUpFact = (
    e.TopUpConsented
    | e.TopUpRevoked
    | e.TopUpSwitchedOff
    | e.TopUpRequested
    | e.TopUpFailed
    | e.TopUpSettled
)


def _top_up(fact: _TopUpFact, position: int) -> Iterator[Change]:
    match fact:
        case e.TopUpConsented():
            yield Change(
                "INSERT INTO top_up_consents VALUES (%s, %s, %s, %s, %s, %s, 'on', 0, NULL, %s, %s)"
                " ON CONFLICT (account_id) DO UPDATE SET consent_no = EXCLUDED.consent_no,"
                " reference = EXCLUDED.reference, below = EXCLUDED.below,"
                " amount = EXCLUDED.amount, max_per_day = EXCLUDED.max_per_day, status = 'on',"
                " failures = 0, failed_at = NULL, armed_position = EXCLUDED.armed_position,"
                " consented_at = EXCLUDED.consented_at",
                (
                    fact.account_id,
                    fact.consent_no,
                    fact.reference,
                    fact.below,
                    fact.amount,
                    fact.max_per_day,
                    position,
                    fact.consented_at,
                ),
            )
        case e.TopUpRevoked():
            yield _consent("status = 'revoked'", fact.account_id, fact.consent_no)
        case e.TopUpSwitchedOff():
            yield _consent("status = 'off'", fact.account_id, fact.consent_no)
        case e.TopUpRequested():
            yield Change(
                "INSERT INTO top_ups VALUES"
                " (%s, %s, %s, %s, %s, 'requested', NULL, NULL, %s, NULL)",
                (
                    fact.account_id,
                    fact.trigger,
                    fact.consent_no,
                    fact.amount,
                    fact.tax,
                    fact.requested_at,
                ),
            )
            yield payment_ordered(
                top_up_id(fact.account_id, fact.trigger),
                fact.account_id,
                ("auto_top_up", None, fact.amount, fact.tax),
                fact.requested_at,
                position,
            )
        case e.TopUpFailed():
            yield _closed(
                fact.account_id, fact.trigger, "failed", fact.reason, None, fact.failed_at
            )
            yield payment_failed(
                top_up_id(fact.account_id, fact.trigger), fact.reason, fact.failed_at
            )
            yield Change(
                "UPDATE top_up_consents SET failures = failures + 1, failed_at = %s,"
                " armed_position = %s WHERE account_id = %s AND consent_no = %s",
                (fact.failed_at, position, fact.account_id, fact.consent_no),
            )
        case e.TopUpSettled():
            yield _closed(
                fact.account_id, fact.trigger, "settled", None, fact.payment, fact.settled_at
            )
            yield payment_settled(
                top_up_id(fact.account_id, fact.trigger),
                fact.payment,
                fact.amount,
                fact.tax,
                fact.settled_at,
            )
            yield from tax_paid(
                top_up_id(fact.account_id, fact.trigger), fact.tax, fact.settled_at, position
            )
            yield Change(
                "UPDATE top_up_consents SET failures = 0, failed_at = NULL, armed_position = %s"
                " WHERE account_id = %s AND consent_no = %s",
                (position, fact.account_id, fact.consent_no),
            )


def _consent(what: str, account_id: int, consent_no: int) -> Change:
    return Change(
        f"UPDATE top_up_consents SET {what} WHERE account_id = %s AND consent_no = %s",  # noqa: S608 - constants
        (account_id, consent_no),
    )


def _closed(
    account_id: int, trigger: int, status: str, reason: str | None, payment: str | None, at: int
) -> Change:
    return Change(
        "UPDATE top_ups SET status = %s, reason = %s, payment = %s, closed_at = %s"
        " WHERE account_id = %s AND trigger = %s",
        (status, reason, payment, at, account_id, trigger),
    )
