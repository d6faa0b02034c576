#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that answers of `tessera serve` to response_format requests are valid for their JSON schemas.

usage: check_schemas.py SUITE [options]

SUITE is a folder with the JSON Schema Test Suite (https://github.com/json-schema-org/JSON-Schema-Test-Suite). Its schemas of
the last three drafts, read as draft 2020-12, and those of function_schemas.py are sent to a server with a model of random
weights, --seeds times each, at the temperature 1.5. Numbers are tested as integers if the server requires this type. Every
answer that ends by itself must be valid for the package jsonschema (tools/requirements.txt). A schema with a keyword that is
not supported must be rejected with the status 400 and the name of the keyword. Half of the requests are `strict`. Logit biases,
which differ between seeds, make some of the answers short. The schemas of function_schemas.py are also sent as parameters of a
function that must be called.

The exit status is 1 if an answer is wrong, or fewer than --least schemas were accepted.
"""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import http.client
import importlib.metadata
import json
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import jsonschema

from function_schemas import SCHEMAS
from serve_program import ServeProgram, print_table, use_only_loopback, write_random_model, write_uniform_model

ROOT = Path(__file__).resolve().parent.parent
PARALLEL = 16
DRAFTS = ("draft2020-12", "draft2019-09", "draft7")
LISTS, MAPS, NESTED = ("allOf", "anyOf", "oneOf", "prefixItems"), ("properties", "$defs", "definitions"), ("items", "additionalProperties")
# The keywords of docs/llm.md.
SUPPORTED = {*LISTS, *MAPS, *NESTED, "$comment", "$id", "$ref", "$schema", "const", "default", "deprecated", "description", "enum", "examples",
             "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum",
             "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly"}
UNSUPPORTED = {
    "$anchor": "a", "$dynamicAnchor": "a", "$dynamicRef": "#a", "$recursiveAnchor": True, "$recursiveRef": "#", "$vocabulary": {},
    "additionalItems": False, "contains": {"const": 1}, "contentEncoding": "base64", "contentMediaType": "text/html", "contentSchema": {},
    "dependencies": {}, "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {}}, "else": {}, "if": {}, "then": {},
    "maxContains": 1, "minContains": 1, "maxProperties": 1, "minProperties": 1, "not": {}, "patternProperties": {"^a": {}},
    "propertyNames": {"maxLength": 2}, "unevaluatedItems": False, "unevaluatedProperties": False, "nullable": True, "x-order": 1,
}
PLACES = {
    "the root": lambda s: s,
    "a property": lambda s: {"type": "object", "properties": {"a": s}},
    "elements": lambda s: {"type": "array", "items": s},
    "a reference": lambda s: {"$ref": "#/$defs/a", "$defs": {"a": s}},
    "an unused definition": lambda s: {"type": "null", "$defs": {"a": s}},
    "a branch": lambda s: {"anyOf": [{"type": "null"}, s]},
    "other properties": lambda s: {"type": "object", "additionalProperties": s},
}
# Values of supported keywords that a grammar cannot express, and what the message must contain.
INEXPRESSIBLE = [
    ({"type": "string", "format": "email"}, "format"),
    ({"type": "string", "pattern": "(?=a)b"}, "pattern"),
    ({"type": "string", "pattern": r"(a)\1"}, "pattern"),
    ({"type": "number", "minimum": 0.5}, "minimum"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    ({"$ref": "https://example.com/schema"}, "reference"),
    ({"$ref": "#/$defs/missing"}, "reference"),
    ({"type": "strin"}, "type"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "bounds"),
    ({"type": "string", "minLength": 5, "maxLength": 4}, "minLength"),
    ({"type": "string", "maxLength": -1}, "maxLength"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "required"),
]

SPACES = "\\t\\n\\v\\f\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"  # \s in ECMA-262
checker = jsonschema.FormatChecker()


@checker.checks("date-time", raises=ValueError)
def is_date_time(value):
    if not isinstance(value, str):
        return True
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", value, re.ASCII):
        return False
    datetime.date.fromisoformat(value[:10])
    return is_time(value[11:])


@checker.checks("time", raises=ValueError)
def is_time(value):
    if not isinstance(value, str):
        return True
    found = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-](\d\d):(\d\d))", value, re.ASCII)
    return bool(found) and all(int(found[i] or 0) <= limit for i, limit in ((1, 23), (2, 59), (3, 59), (6, 23), (7, 59)))


def python_pattern(pattern):
    """Returns the regular expression of Python that has the meaning of `pattern` in ECMA-262, the dialect of JSON Schema."""
    out, inside, at = "", False, 0
    while at < len(pattern):
        part = pattern[at:at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(part)
        if part in (r"\s", r"\S") and not inside:
            part = ("[" if part == r"\s" else "[^") + SPACES + "]"
        elif part == r"\s":
            part = SPACES
        elif part == "$" and not inside:
            part = r"\Z"
        elif part == "." and not inside:
            part = "[^\n\r\u2028\u2029]"
        elif part in ("[", "]"):
            inside = part == "["
        out += part
    return re.compile(out, re.ASCII)


def check_pattern(validator, pattern, value, schema):
    if isinstance(value, str) and not python_pattern(pattern).search(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": check_pattern})


def unsupported_keywords(schema, root=True):
    """Returns the keywords of a schema and of the schemas in it that are not supported."""
    found = set()
    if not isinstance(schema, dict):
        return found
    for keyword, value in schema.items():
        if keyword not in SUPPORTED or (keyword == "$id" and not root) or (keyword == "items" and isinstance(value, list)):
            found.add(keyword)
        elif keyword in MAPS and isinstance(value, dict):
            found.update(*(unsupported_keywords(one, False) for one in value.values()))
        elif keyword in NESTED:
            found |= unsupported_keywords(value, False)
        elif keyword in LISTS and isinstance(value, list):
            found.update(*(unsupported_keywords(one, False) for one in value))
    return found


def suite_schemas(folder):
    """Returns the schemas of the test suite by name, without repetitions."""
    out, seen = {}, set()
    for draft in DRAFTS:
        files = sorted((folder / "tests" / draft).rglob("*.json"))
        if not files:
            sys.exit(f"{folder}: there are no files in tests/{draft}")
        for file in files:
            for number, case in enumerate(json.loads(file.read_text(encoding="utf-8"))):
                schema = case["schema"]
                text = json.dumps({**schema, "$schema": ""} if isinstance(schema, dict) else schema, sort_keys=True)
                if text not in seen:
                    out[f"{draft}/{file.stem}/{number}"] = schema
                seen.add(text)
    return out


class Client:
    """Sends requests on a connection of each thread. With `calls`, schemas are sent as parameters of a function that must be
    called, and otherwise as response_format."""

    def __init__(self, server, calls=False):
        self.server, self.calls, self.local = server, calls, threading.local()
        self.biased = [self.token(text) for text in '"}]']

    def token(self, text):
        tokens = self.server.post("/tokenize", {"content": text})[1]["tokens"]
        return str(tokens[0])

    def ask(self, schema, seed, tokens):
        """Returns the status and the response."""
        bias = (0, 4, 7, 10)[seed % 4]
        body = {"messages": [{"role": "user", "content": "Write JSON."}], "temperature": 1.5, "top_k": 0, "top_p": 1, "seed": seed,
                "max_tokens": tokens, "logit_bias": dict.fromkeys(self.biased, bias)}
        strict = seed % 2 == 0
        if self.calls:
            body["tools"] = [{"type": "function", "function": {"name": "answer", "parameters": schema, "strict": strict}}]
            body["tool_choice"] = "required" if seed % 3 else {"type": "function", "function": {"name": "answer"}}
            body["parallel_tool_calls"] = False
        else:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}
        is_reused = hasattr(self.local, "connection")
        if not is_reused:
            self.local.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        try:
            self.local.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = self.local.connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            del self.local.connection
            if is_reused:  # the server closes connections that were idle for 60 s
                return self.ask(schema, seed, tokens)
            return 0, {"error": {"message": f"{type(error).__name__}: {error}"}}


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def judge(schema, status, answer, calls=False):
    """Returns "valid" or "length", or a description of what is wrong."""
    if status != 200:
        return f"the status is {status}: {answer['error']['message']}"
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if choice["finish_reason"] == "length":
        return "length"
    if choice["finish_reason"] != ("tool_calls" if calls else "stop"):
        return f"the finish reason is {choice['finish_reason']}: {text!r}"
    if calls:
        functions = [call["function"] for call in choice["message"]["tool_calls"]]
        if [f["name"] for f in functions] != ["answer"]:
            return f"not a call of the function: {choice['message']}"
        text = functions[0]["arguments"]
    try:
        value = json.loads(text, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except ValueError as error:
        return f"not JSON: {error}: {text!r}"
    error = jsonschema.exceptions.best_match(Validator(schema, format_checker=checker).iter_errors(value))
    return "valid" if error is None else f"not valid: {error.message}: {text!r}"


def check_named(client, report):
    """Sends schemas with keywords and values that are not supported. Returns the number of requests."""
    cases = [(place(schema), f'"{name}"') for name, value in UNSUPPORTED.items()
             for schema in ({name: value}, {"type": "object", name: value}) for place in PLACES.values()] + INEXPRESSIBLE
    for schema, name in cases:
        status, answer = client.ask(schema, 1, 1)
        message = answer["error"]["message"] if "error" in answer else ""
        if status != 400 or name not in message:
            report(f"{json.dumps(schema)}: the status is {status}, and the message does not name {name}: {message}")
        elif answer["error"]["param"] != "response_format.json_schema.schema":
            report(f"{json.dumps(schema)}: param is {answer['error']['param']}")
    return len(cases)


def sort_schemas(client, schemas, counts, report, verbose):
    """Returns the schemas that the server accepts, and checks how it rejects the others."""
    accepted = {}
    for name, schema in schemas.items():
        status, answer = client.ask(schema, 3, 1)
        if status == 400 and '"integer"' in answer["error"]["message"] and isinstance(schema, dict):  # numbers require this type
            integer = {**schema, "type": "integer"}
            if client.ask(integer, 3, 1)[0] == 200:
                accepted[name + " of integers"] = integer
        wrong = unsupported_keywords(schema)
        if status == 200:
            accepted[name] = schema
            if wrong:
                report(f"{name}: accepted, although {', '.join(sorted(wrong))} is not supported")
        elif status != 400:
            report(f"{name}: the status is {status}: {answer['error']['message']}")
        elif wrong:
            counts["unsupported"] += 1
            if not any(f'"{keyword}"' in answer["error"]["message"] for keyword in wrong):
                report(f"{name}: the message names none of {', '.join(sorted(wrong))}: {answer['error']['message']}")
        else:
            counts["value"] += 1
            if verbose:
                print(f"{name}: {answer['error']['message']}")
    counts["accepted"] = len(accepted)
    return accepted


def check_source(source, client, schemas, report, options):
    """Sends schemas with all seeds. Returns a row of the table."""
    counts, done = collections.Counter(), collections.Counter()
    accepted = sort_schemas(client, schemas, counts, report, options.verbose)
    work = [(name, seed) for seed in range(options.seeds) for name in accepted]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        answers = pool.map(lambda item: client.ask(accepted[item[0]], item[1], options.tokens), work)
        for (name, seed), (status, answer) in zip(work, answers):
            result = judge(accepted[name], status, answer, client.calls)
            counts[result if result in ("valid", "length") else "wrong"] += 1
            done[name] += result == "valid"
            if result not in ("valid", "length"):
                report(f"{name}, seed {seed}: {result}\n    schema: {json.dumps(accepted[name])}")
    counts["never"] = sum(done[name] == 0 for name in accepted)
    if options.verbose:
        print("\n".join(f"{name}: no answer ended by itself" for name in accepted if done[name] == 0))
    return [source, len(schemas), *(counts[key] for key in ("unsupported", "value", "accepted", "valid", "length", "wrong", "never"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("suite", metavar="SUITE", type=Path, help="folder with the JSON Schema Test Suite")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/tessera", help="tessera (default: %(default)s)")
    parser.add_argument("--random-model", type=Path, default=ROOT / "build/release/bin/random_model",
                        help="random_model (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=33025, help="tokens of the model; these are all bytes, and all pairs of an ASCII "
                        "character and a byte (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="requests for each schema (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=200, help="maximum tokens of an answer (default: %(default)s)")
    parser.add_argument("--least", type=int, default=200, help="minimum number of accepted schemas (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="print why schemas without unsupported keywords were rejected")
    options = parser.parse_args()
    use_only_loopback()
    functions = {name: schema for name, schema in SCHEMAS.items() if schema.get("type") == "object"}
    wrong, rows, start = [], [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "random.gguf")
        write_random_model(options.random_model, path, layers=2, width=64, hidden=128, heads=4, key_heads=2, context=1024,
                           vocabulary=options.vocabulary)
        server = ServeProgram(options.program, path, ["--template", "chatml", "--quiet"])
        client = Client(server)
        named = check_named(client, wrong.append)
        rows.append(check_source("function_schemas.py", client, SCHEMAS, wrong.append, options))
        rows.append(check_source("JSON Schema Test Suite", client, suite_schemas(options.suite), wrong.append, options))
        wrong += server.end()
        path = os.path.join(folder, "uniform.gguf")
        write_uniform_model(path)
        server = ServeProgram(options.program, path, ["--quiet"])
        calls = check_source("the same, as functions", Client(server, calls=True), functions, wrong.append, options)
        wrong += server.end()
        seconds = time.monotonic() - start
    total = [sum(column) for column in list(zip(*rows))[1:]]
    for text in wrong[:40]:
        print(text)
    if len(wrong) > 40:
        print(f"and {len(wrong) - 40} more")
    print_table(("source", "schemas", "400: keyword", "400: value", "accepted", "valid answers", "cut off", "wrong", "never ended"),
                [*rows, ["total", *total], calls])
    print(f"{named} requests with unsupported keywords and values; jsonschema {importlib.metadata.version('jsonschema')}; {seconds:.0f} s")
    if total[3] < options.least:
        print(f"only {total[3]} schemas were accepted; at least {options.least} are required")
    print(f"{len(wrong)} errors" if wrong else "no errors")
    return 1 if wrong or total[3] < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
