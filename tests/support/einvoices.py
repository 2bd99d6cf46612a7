"""Validating e-invoices as a recipient would: the XSD, and the Schematron of EN 16931."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import facturx
from saxonche import PySaxonProcessor

_RULES = Path(str(files("facturx"))) / "xsd_and_schematron" / "facturx-en16931"


@cache
def _schematron() -> tuple[Any, Any]:
    processor = PySaxonProcessor(license=False)
    compiled = processor.new_xslt30_processor().compile_stylesheet(
        stylesheet_file=str(_RULES / "FACTUR-X_EN16931.xslt")
    )
    return processor, compiled


def broken_rules(xml: bytes) -> list[str]:
    """The texts of all rules of EN 16931 that an e-invoice breaks; none is what is wanted."""
    processor, compiled = _schematron()
    report = compiled.transform_to_string(xdm_node=processor.parse_xml(xml_text=xml.decode()))
    assert report is not None
    assert "schematron-output" in report
    found = processor.parse_xml(xml_text=report)
    paths = processor.new_xpath_processor()
    paths.declare_namespace("svrl", "http://purl.oclc.org/dsdl/svrl")
    paths.set_context(xdm_item=found)
    items = paths.evaluate("//svrl:failed-assert/svrl:text/normalize-space()")
    return [] if items is None else [str(item) for item in items]


def fits_schema(xml: bytes) -> bool:
    """True when the XML is valid by the XSD of its profile."""
    try:
        return bool(facturx.xml_check_xsd(xml, flavor="factur-x", level="en16931"))
    except Exception as error:
        if "not valid against the official XML Schema" not in str(error):
            raise
        return False
