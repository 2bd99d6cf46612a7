"""The API reference as one page of HTML, made from the schema itself; no script, no other host."""

from __future__ import annotations

import html
from typing import Any

import msgspec
from litestar.openapi.spec import OpenAPI

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}
details{border:1px solid var(--line);border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:14px/1.45 ui-monospace,monospace}
pre{background:var(--soft);padding:.6rem;overflow:auto;border-radius:.3rem}
b.m{display:inline-block;min-width:4.2rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.15rem .6rem .15rem 0;vertical-align:top}
.r{opacity:.7;font-size:.9em}
"""


def readable_page(schema: OpenAPI) -> str:
    """Every route by subject: who may use it, what it takes, what it answers."""
    document: dict[str, Any] = schema.to_schema()
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{_text(info['title'])} API</title><style>{_STYLE}</style>",
        f"<h1>{_text(info['title'])} API</h1><p class=r>version {_text(info['version'])}"
        " · <a href=/openapi.json>openapi.json</a></p>",
        f"<p>{_text(info.get('description', ''))}</p>",
    ]
    for tag in document.get("tags", []):
        parts.append(f"<h2>{_text(tag['name'])}</h2><p>{_text(tag.get('description', ''))}</p>")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if isinstance(operation, dict) and tag["name"] in operation.get("tags", []):
                    parts.append(_operation(document, path, method, operation))
    return "".join(parts)


def _operation(document: dict[str, Any], path: str, method: str, op: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{_text(one['name'])}</code><td>{_text(one['in'])}"
        f"<td>{'required' if one.get('required') else ''}<td>{_text(one.get('description', ''))}"
        for one in op.get("parameters", [])
    )
    body = op.get("requestBody", {}).get("content", {})
    shown = [f"<p>{_text(op.get('description', ''))}</p>"]
    roles = [role for one in op.get("security", []) for role in one.get("key", [])]
    if roles:
        shown.append(f"<p class=r>for {_text(', '.join(roles))}</p>")
    if rows:
        shown.append(f"<table><tr><th>parameter<th>in<th><th>{rows}</table>")
    for media in body.values():
        shown.append(f"<p>body</p><pre>{_example(document, media.get('schema', {}))}</pre>")
    errors = []
    for status, answer in op.get("responses", {}).items():
        for media in answer.get("content", {}).values():
            if status.startswith("2"):
                example = _example(document, media.get("schema", {}))
                shown.append(f"<p>answer {_text(status)}</p><pre>{example}</pre>")
            else:
                errors.append(f"<tr><td>{_text(status)}<td>{_text(answer.get('description', ''))}")
    if errors:
        shown.append(f"<table>{''.join(errors)}</table>")
    return (
        f"<details><summary><b class=m>{method.upper()}</b> <code>{_text(path)}</code>"
        f" — {_text(op.get('summary', ''))}</summary>{''.join(shown)}</details>"
    )


def _example(document: dict[str, Any], schema: dict[str, Any]) -> str:
    value = _sample(document, schema, 0)
    return _text(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _sample(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    if depth > 6:  # noqa: PLR2004 - deep enough for a reader
        return "…"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _sample(document, document["components"]["schemas"][name], depth + 1)
    if schema.get("examples"):
        return schema["examples"][0]
    for key in ("oneOf", "anyOf"):
        options = [one for one in schema.get(key, []) if one.get("type") != "null"]
        if options:
            return _sample(document, options[0], depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _sample(document, one, depth + 1) for name, one in properties.items()}
    if kind == "array":
        return [_sample(document, schema.get("items", {}), depth + 1)]
    return {"string": "text", "integer": 1, "number": 1, "boolean": True}.get(str(kind))


def _text(value: object) -> str:
    return html.escape(str(value))
