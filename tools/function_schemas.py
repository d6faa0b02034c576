# SPDX-License-Identifier: Apache-2.0
"""Parameters of functions, as editors, agents and Pydantic describe them to a language model. Together they use all keywords
that Tessera supports. check_schemas.py generates values for them."""


def obj(properties, required=None, **more):
    """Returns a closed object. By default, all properties are required."""
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": False, **more}


def text(description=None, **more):
    return {"type": "string", **({"description": description} if description else {}), **more}


def integer(low=None, high=None, **more):
    bounds = {"minimum": low, "maximum": high}
    return {"type": "integer", **{key: value for key, value in bounds.items() if value is not None}, **more}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def nullable(schema):
    return {"anyOf": [schema, {"type": "null"}], "default": None}


BOOLEAN, NUMBER = {"type": "boolean"}, {"type": "number"}

SCHEMAS = {
    "get_weather": obj({"location": text("City and country, such as Bern, Switzerland"),
                        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, ["location"]),
    "get_time": obj({"zone": text(pattern="^(UTC|[A-Z][a-z]{2,8}/[A-Z][a-z]{2,8})$"), "format": {"enum": ["12h", "24h", None]}}),
    "read_file": obj({"path": text("Absolute path", minLength=1), "offset": integer(0), "limit": integer(1, 2000, default=200)}, ["path"],
                     **{"$schema": "http://json-schema.org/draft-07/schema#"}),
    "write_file": obj({"path": text(), "content": text(maxLength=60), "mode": text(pattern="^0[0-7]{3}$")}, ["path", "content"]),
    "edit_file": obj({"path": text(), "edits": array(obj({"old": text(), "new": text(), "all": {**BOOLEAN, "default": False}}, ["old", "new"]),
                                                     minItems=1, maxItems=4)}),
    "list_folder": obj({"path": text(default="."), "depth": integer(1, 5), "hidden": BOOLEAN}, []),
    "search_files": obj({"pattern": text("A regular expression"), "paths": array(text(maxLength=12), maxItems=5), "case": BOOLEAN,
                         "kind": {"const": "regex"}}, ["pattern", "kind"]),
    "run_command": obj({"command": array(text(minLength=1, maxLength=16), minItems=1, maxItems=6), "timeout": integer(1, 600_000),
                        "environment": {"type": "object", "additionalProperties": {"type": "string"}}}, ["command"]),
    "run_sql": obj({"query": text(), "parameters": array({"type": ["string", "number", "boolean", "null"]}), "read_only": {"const": True}}),
    "http_request": obj({"method": {"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"]}, "url": text(pattern="^https://[a-z0-9.-]+(/[a-z0-9._-]*)*$"),
                         "headers": {"type": "object", "additionalProperties": text(maxLength=20)}, "body": nullable(text())},
                        ["method", "url"]),
    "send_email": obj({"to": array(text(pattern=r"^[a-z]+(\.[a-z]+)*@[a-z]+\.(com|org|net)$"), minItems=1, maxItems=3),
                       "subject": text(maxLength=40), "body": text(), "priority": {"type": "integer", "enum": [1, 2, 3]}}),
    "create_event": obj({"title": text(minLength=1, maxLength=30), "start": text(format="date-time"), "end": text(format="date-time"),
                         "guests": array(text(maxLength=10)), "repeat": nullable(obj({"every": {"enum": ["day", "week"]}, "times": integer(1, 52)}))},
                        ["title", "start", "end"]),
    "find_free_time": obj({"date": text(format="date"), "from": text(format="time"), "to": text(format="time"), "minutes": integer(15, 480, multipleOf=15)}),
    "add_reminder": {"type": "object", "properties": {"at": text(format="date-time"), "text": text()}, "required": ["at"]},
    "convert_money": obj({"amount": NUMBER, "from": text(pattern="^[A-Z]{3}$"), "to": text(pattern="^[A-Z]{3}$")}),
    "book_flight": obj({"from": text(pattern="^[A-Z]{3}$"), "to": text(pattern="^[A-Z]{3}$"), "date": text(format="date"),
                        "passengers": array(obj({"name": text(maxLength=20), "age": integer(0, 120), "seat": text(pattern=r"^[1-9]\d?[A-F]$")}),
                                            minItems=1, maxItems=9), "cabin": {"enum": ["economy", "business"]}}),
    "book_table": obj({"people": integer(1, 12), "when": text(format="date-time"), "notes": nullable(text(maxLength=50))}),
    "place_order": obj({"order": text(format="uuid"), "lines": array(obj({"sku": text(pattern="^[A-Z]{2}-[0-9]{4}$"),
                                                                          "count": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
                                                                          "price": NUMBER}), minItems=1)}),
    "pay": obj({"method": {"oneOf": [obj({"kind": {"const": "card"}, "number": text(pattern=r"^\d{16}$")}),
                                     obj({"kind": {"const": "transfer"}, "iban": text(pattern=r"^[A-Z]{2}\d{2}[A-Z0-9]{10,20}$")}),
                                     obj({"kind": {"const": "cash"}})]}, "cents": integer(1, 10_000_000)}),
    "block_address": obj({"address": text(format="ipv4"), "ports": array(integer(1, 65535), minItems=1, maxItems=3), "comment": text()},
                         ["address", "ports"]),
    "deploy": obj({"service": text(pattern="^[a-z][a-z0-9-]{0,15}$"), "image": text(pattern=r"^[a-z]+:v\d+\.\d+\.\d+$"), "replicas": integer(0, 50),
                   "resources": obj({"cpu": text(pattern="^[1-9][0-9]{0,3}m$"), "memory": text(pattern="^[1-9][0-9]{0,4}(Mi|Gi)$")}),
                   "strategy": {"enum": ["rolling", "recreate"]}}, ["service", "image"]),
    "scale": obj({"target": {"oneOf": [integer(0, 100), text(pattern=r"^\d{1,3}%$")]}}),
    "query_metrics": obj({"metric": text(), "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                          "range": {"type": "array", "prefixItems": [integer(0), integer(0)], "minItems": 2, "maxItems": 2}}),
    "draw_shape": obj({"shape": {"$ref": "#/$defs/Shape"}, "color": text(pattern="^#[0-9a-f]{6}$")}, **{"$defs": {
        "Point": obj({"x": NUMBER, "y": NUMBER}),
        "Shape": {"anyOf": [obj({"type": {"const": "circle"}, "center": {"$ref": "#/$defs/Point"}, "radius": NUMBER}),
                            obj({"type": {"const": "polygon"}, "points": array({"$ref": "#/$defs/Point"}, minItems=3, maxItems=6)})]}}}),
    "save_tree": obj({"root": {"$ref": "#/definitions/node"}}, definitions={
        "node": obj({"value": integer(-9, 9), "left": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]},
                     "right": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}}, ["value"])}),
    "think": obj({"thought": text(title="Thought"), "next": BOOLEAN, "number": integer(1, title="Number"), "branch": nullable(text())},
                 ["thought", "next", "number"], title="Thinking"),
    "set_todos": obj({"todos": array(obj({"content": text(minLength=1), "status": {"enum": ["pending", "active", "done"]},
                                          "id": text(pattern="^[0-9]+$")}), maxItems=8)}),
    "remember": obj({"facts": array(obj({"subject": text(), "relation": text(pattern="^[a-z_]+$"), "object": text()}), minItems=1, maxItems=3)}),
    "classify": obj({"label": {"enum": ["bug", "feature", "question", "spam"]}, "confidence": NUMBER, "reasons": array(text(), minItems=1, maxItems=3)}),
    "extract_person": obj({"name": text(), "born": nullable(text(format="date")), "emails": array(text()), "address": {
        "anyOf": [obj({"street": text(), "zip": text(pattern=r"^\d{4,5}$"), "city": text()}), {"type": "null"}]}}),
    "translate": obj({"text": text(), "to": {"type": "string", "enum": ["de", "fr", "it", "rm"]}, "formal": {"type": ["boolean", "null"]}}),
    "create_issue": {"type": "object", "properties": {"title": text(), "labels": array({"enum": ["a", "b", "c"]}), "assignee": text()},
                     "required": ["title"], "additionalProperties": False, "description": "Creates an issue", "deprecated": False,
                     "examples": [{"title": "It fails"}], "$comment": "of a tracker"},
    "set_light": {"allOf": [obj({"room": text(maxLength=8), "level": integer(0, 100)}),
                            {"properties": {"level": {"multipleOf": 5, "type": "integer"}}}]},
    "play_music": obj({"artist": text(maxLength=24), "volume": {"allOf": [integer(0), integer(None, 11)]}}),
    "vote": {"type": "array", "items": {"type": "integer", "enum": [1, 2, 3, 5, 8, 13]}, "minItems": 2, "maxItems": 5},
    "pick_one": {"enum": ["a \"quoted\" one", "línea\n", 1, 2.5, None, True, {"k": [1, {"l": []}]}, ["x"]]},
    "pick_unique": obj({"ids": array(integer(1, 9), uniqueItems=True, maxItems=1), "more": array(BOOLEAN, uniqueItems=False, maxItems=3)}),
    "free_form": {"type": "object", "properties": {"id": integer(100, 999)}, "required": ["id"], "additionalProperties": {"type": ["integer", "null"]}},
    "any_json": {"type": "object", "properties": {"value": {}, "meta": True}, "required": ["value"]},
    "tuple": {"type": "array", "prefixItems": [text(pattern="^[xyz]$"), NUMBER, BOOLEAN], "items": {"type": "null"}, "minItems": 3, "maxItems": 5},
    "words": obj({"if": text(maxLength=4), "not": BOOLEAN, "contains": integer(0, 3), "$ref": text(enum=["a", "b"]), "ключ": text(pattern="^[а-я]{1,5}$")}),
    "move_mouse": obj({"x": integer(0, 3839), "y": integer(0, 2159), "button": {"enum": ["left", "middle", "right"]}, "clicks": integer(0, 3)},
                      ["x", "y"]),
    "press_keys": obj({"keys": array({"anyOf": [text(pattern="^[a-z0-9]$"), {"enum": ["Enter", "Escape", "Tab", "F1"]}]}, minItems=1, maxItems=4)}),
    "open_page": obj({"url": text(pattern=r"^https?://\w+(\.\w+)+/?$"), "wait": {"type": ["integer", "null"], "minimum": 0, "maximum": 30}}),
    "query_selector": {"type": "object", "properties": {"css": text(), "index": integer(0)}, "required": ["css", "all"],
                       "additionalProperties": BOOLEAN},
    "git_commit": obj({"message": text(pattern=r"^[A-Z][^\n]{9,70}$"), "files": array(text(maxLength=20), minItems=1), "amend": {"const": False}}),
    "git_log": obj({"since": nullable(text(format="date")), "hash": text(pattern="^([0-9a-f]{7}|[0-9a-f]{40})$"), "count": integer(1, 50)}, ["hash"]),
    "review_code": obj({"comments": array(obj({"line": integer(1), "severity": {"enum": ["note", "warning", "error"]}, "text": text()}), maxItems=3),
                        "verdict": {"enum": ["approve", "reject"]}}),
    "filter_rows": obj({"where": {"$ref": "#/$defs/condition"}}, **{"$defs": {"condition": {"oneOf": [
        obj({"op": {"const": "and"}, "all": array({"$ref": "#/$defs/condition"}, minItems=1, maxItems=2)}),
        obj({"op": {"enum": ["=", "<", ">"]}, "column": text(pattern="^[a-z_]+$"), "value": {"type": ["number", "string", "boolean"]}})]}}}),
    "chart": obj({"kind": {"enum": ["bar", "line"]}, "series": array(obj({"name": text(maxLength=8), "points": array(NUMBER, minItems=1, maxItems=6)}),
                                                                     minItems=1, maxItems=2), "title": nullable(text(maxLength=30))}),
    "route": obj({"stops": array({"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2}, minItems=2, maxItems=4), "by": {"const": "car"}}),
    "measure": {"type": "object", "properties": {"value": NUMBER, "unit": {"type": "string", "enum": ["m", "kg", "s"]}}, "required": ["value"],
                "readOnly": True, "writeOnly": False, "$id": "https://example.com/measure"},
    "play_move": text(pattern="^(O-O(-O)?|[KQRBN]?[a-h]?x?[a-h][1-8](=[QRBN])?)[+#]?$"),
    "set_alarm": obj({"time": text(format="time"), "days": array({"enum": ["mo", "tu", "we", "th", "fr", "sa", "su"]}, maxItems=7)}),
    "large_numbers": obj({"id": integer(10**15, 10**17), "delta": integer(-1_000_000_007, 12), "even": integer(-50, 50, multipleOf=2)}),
}
