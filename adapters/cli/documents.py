"""Documents: listed, shown, and written to files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from adapters.cli.options import (
    Account,
    AfterPosition,
    AsJson,
    Home,
    Limit,
    account_id,
    reading,
)
from ledger.errors import RejectedError

if TYPE_CHECKING:
    from ledger.services.questions.documents import Document


def invoice(
    number: Annotated[str | None, Parameter(help="Without it, documents are listed.")] = None,
    *,
    pdf: Annotated[Path | None, Parameter(help="Write it as PDF to this file.")] = None,
    html: Annotated[Path | None, Parameter(help="Write it as a page to this file.")] = None,
    csv: Annotated[Path | None, Parameter(help="Write its lines as CSV to this file.")] = None,
    xml: Annotated[Path | None, Parameter(help="Write its EN 16931 e-invoice.")] = None,
    account: Account = None,
    after: AfterPosition = 0,
    limit: Limit = 100,
    home: Home = None,
    json: AsJson = False,
) -> None:
    """Show a document (INV-, USE-, CN-, SB-) with its lines, write it to files, or list all.

    Example: gpuledger invoice USE-00000001
    """
    from adapters.cli.output import page, print_rows
    from ledger.services.questions import documents as ask

    files = {"pdf": pdf, "html": html, "csv": csv, "xml": xml}
    wanted = {form: file for form, file in files.items() if file is not None}
    if number is None and wanted:
        message = "name the document that is to be written, such as USE-00000001"
        raise RejectedError("invalid_args", message)
    with reading(home) as (ledger, connection):
        if number is not None:
            found = ask.document(connection, ledger.vault, number)
        else:
            owner = account_id(ledger, connection, account)
            listed = ask.documents(connection, account_id=owner, after=after, limit=limit + 1)
    if number is None:
        columns = ["number", "kind", "account_id", "net", "tax", "issued_at", "position"]
        shown = page(listed, limit, lambda one: one.position)
        print_rows(shown, columns, as_json=json, title="documents", empty="no documents")
        return
    _write_document(found, wanted)
    if json:
        from adapters.documents.forms import as_json

        sys.stdout.write(as_json(found).decode())
    elif not wanted:
        _print_document(found)


def _write_document(found: Document, wanted: dict[str, Path]) -> None:
    """Make every form before any file is written, so that a refusal leaves none."""
    from adapters.documents.forms import FORMS

    made = {file: FORMS[form].make(found) for form, file in wanted.items()}
    for file, content in made.items():
        file.write_bytes(content)
        sys.stderr.write(f"{found.number} written to {file}\n")


def _print_document(found: Document) -> None:
    from adapters.cli.output import print_rows
    from adapters.documents.sheet import sheet

    shown = sheet(found)
    sys.stdout.write(f"{shown.number}  account {found.account_id}  {found.status}\n")
    for label, value in shown.facts[1:]:
        sys.stdout.write(f"{label:<12}  {value}\n")
    sys.stdout.write("\n")
    columns = ["line", "description", "quantity", "unit", "rate", "amount", "cents", "late"]
    print_rows(found.lines, columns, as_json=False, title="lines", empty="no lines")
    width = max(len(total.value) for total in shown.totals)
    for total in shown.totals:
        sys.stdout.write(f"{total.label:<26}  {total.value:>{width}}\n")
