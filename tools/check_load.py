#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts `tessera serve` under load, with clients that hang up, send invalid data, or send one byte a second.

--clients clients send requests with prompts of 1 to 700 words, streamed or not, with and without grammars, some of them in
parts. A third of them are interrupted: the client closes the connection after a random byte of the request or of the answer, or
while the request waits. Others are malformed: random bytes, mutated requests, wrong JSON, fields, schemas and grammars, and
heads and bodies that are too long. --idle connections send nothing, and --slow ones send one byte a second; both are opened
again when the server closes them. A further client requests /health.

It is checked that
- requests with fixed prompts at the temperature 0 have the same answers as before the load, also their log probabilities;
- malformed requests are rejected with the right status, and no request ends with the status 500;
- afterwards no sequence runs, no page of the KV cache is in use, and the server has as many descriptors as before;
- at the end, the resident memory is at most --growth percent larger than in the first third of the time;
- after SIGTERM the server ends with the status 0, without a report of a sanitizer, and its log contains no text of requests.

--program can be a sanitizer build. The exit status is 1 if a check fails.

Examples:
  tools/check_load.py
  tools/check_load.py --program build/asan/bin/tessera --seconds 600 --growth 10
"""
from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import statistics
import string
import sys
import time
from pathlib import Path

from serve_program import ServeProgram, print_table, use_only_loopback

ROOT = Path(__file__).resolve().parent.parent
SECRET = "SECRETWORD"  # is in every prompt, and must not be in the log
WORDS = ("the index table query row column value of a to is in that and for by with which can be not if this from as on are it "
         "an or function type name order used default key data server user transaction lock page file").split()
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "count": {"type": "integer"},
                                           "kind": {"enum": ["a", "b"]}, "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}},
          "required": ["name", "count", "kind"], "additionalProperties": False}
GRAMMAR = 'root ::= word (", " word){1,6} "."\nword ::= [a-z]+\n'
CHAT, COMPLETION, EMBEDDING = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def prompt_of(chance, words):
    return SECRET + " " + " ".join(chance.choices(WORDS, k=words))


def user(text):
    return [{"role": "user", "content": text}]


def fixed_requests():
    """Returns requests with only one right answer, as (path, body)."""
    chance = random.Random(1)
    words = iter((1, 4, 40, 200, 700, 8, 60, 90, 300, 20, 150, 500, 2, 30))

    def prompt():
        return prompt_of(chance, next(words))
    common = {"temperature": 0, "seed": 1, "max_tokens": 40}
    long = {**common, "max_tokens": 150}
    out = [(COMPLETION, {"prompt": prompt(), **long}), (COMPLETION, {"prompt": prompt(), **common, "logprobs": 5}),
           (COMPLETION, {"prompt": prompt(), **common, "n": 3}), (COMPLETION, {"prompt": prompt(), **common, "logprobs": 1}),
           (COMPLETION, {"prompt": prompt(), **long}), (CHAT, {"messages": user(prompt()), **long, "logprobs": True, "top_logprobs": 4}),
           (CHAT, {"messages": user(prompt()), **common, "n": 2}), (CHAT, {"messages": user(prompt()), **common, "cache_salt": "salt"}),
           (CHAT, {"messages": user(prompt()), **common, "stop": [" the"]}),
           (CHAT, {"messages": user(prompt()), **common, "repeat_penalty": 1.3, "frequency_penalty": 0.5}),
           (CHAT, {"messages": user(prompt()), **long, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
           (COMPLETION, {"prompt": prompt(), **common, "grammar": GRAMMAR}),
           (COMPLETION, {"prompt": [prompt(), prompt()], **common, "echo": True})]
    out = [(path, {**body, "stream": stream}) for path, body in out for stream in (False, True)]
    for inputs in ([1], [400], [20, 1, 90, 300], [3] * 40):
        out.append((EMBEDDING, {"input": [prompt_of(chance, n) for n in inputs], "encoding_format": "base64"}))
    return out


def request_bytes(method, path, body=b"", headers=()):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def read_answer(reader):
    """Returns the status, the headers and the body of a response. Throws EOFError if the connection ends before."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(head[0].split(" ")[1])
            if status != 100:
                break
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(await reader.readline() or b"x", 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return status, headers, body
    except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
        raise EOFError(str(error)) from None


def parse_stream(body):
    """Returns the chunks of a stream of events. Throws ValueError if it is not complete."""
    events = [event for event in body.decode().split("\n\n") if event and not event.startswith(":")]
    if not events or events[-1] != "data: [DONE]":
        raise ValueError(f"a stream without an end: {body[-200:]!r}")
    return [json.loads(event.removeprefix("event: error\n").removeprefix("data: ")) for event in events[:-1]]


def result_of(path, request, body):
    """Returns what must be the same in each answer to a request: for each choice its text, log probabilities and finish
    reason, streamed or not."""
    chunks = parse_stream(body) if request.get("stream") else [json.loads(body)]
    if path == EMBEDDING:
        return {d["index"]: {"embedding": d["embedding"], "finish": "stop"} for d in chunks[0]["data"]}
    out = collections.defaultdict(lambda: {"text": "", "logprobs": [], "finish": None})
    for chunk in chunks:
        if "error" in chunk:
            raise ValueError(f"an error in a stream: {chunk}")
        for choice in chunk["choices"]:
            to = out[choice["index"]]
            to["text"] += choice["text"] if "text" in choice else (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            likely = choice.get("logprobs") or {}
            to["logprobs"] += likely["content"] if "content" in likely else list(zip(*likely.values()))
            to["finish"] = choice["finish_reason"] or to["finish"]
    return dict(sorted(out.items()))


class Load:
    def __init__(self, server, options):
        self.server, self.options = server, options
        self.counts, self.statuses, self.wrong = collections.Counter(), collections.Counter(), collections.defaultdict(list)
        self.fixed = []  # (path, body, bytes of an answer, result)
        self.latencies, self.slowest = [], (0.0, "")
        self.end = 0.0

    def report(self, kind, text):
        self.wrong[kind].append(text)

    def report_text(self):
        """Returns the errors, with a few examples of each kind."""
        lines = []
        for kind, texts in self.wrong.items():
            lines += [f"{kind}: {len(texts)}\n", *(f"    {text[:600]}\n" for text in texts[:3])]
        return "".join(lines)

    def connect(self):
        return asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 20)

    async def answer_to(self, data, connection=None):
        """Sends a request and returns the answer, or None if the connection was closed. A connection that is passed stays open."""
        reader, writer = connection or await self.connect()
        try:
            writer.write(data)
            await writer.drain()
            return await asyncio.wait_for(read_answer(reader), self.options.patience)
        except (ConnectionError, EOFError):
            return None
        except asyncio.TimeoutError:
            raise asyncio.TimeoutError(f"{'on a reused connection: ' if connection else ''}{data!r}") from None
        finally:
            if connection is None:
                writer.close()

    # The reference, before the load

    async def find_reference(self):
        for path, body in fixed_requests():
            answer = await self.answer_to(request_bytes("POST", path, body))
            if answer is None or answer[0] != 200:
                sys.exit(f"{path} {body}: {answer}")
            self.fixed.append((path, body, len(answer[2]), result_of(path, body, answer[2])))
        for (_, body, _, plain), (_, other, _, streamed) in zip(self.fixed[::2], self.fixed[1::2]):
            if other.get("stream") and plain != streamed:
                self.report("the streamed answer differs", f"{body}: {streamed} instead of {plain}")

    # Normal requests

    async def send_fixed(self, chance, connection):
        path, body, _, expected = chance.choice(self.fixed)
        answer = await self.answer_to(request_bytes("POST", path, body), connection)
        await self.judge(path, body, answer, connection is not None, expected)
        return answer is not None

    async def judge(self, path, body, answer, reused, expected=None):
        if answer is None:
            # The server may close an idle connection while the next request is on its way.
            self.statuses["closed"] += 1
            if not reused:
                self.report("the connection was closed without an answer", f"{path} {body}")
            return
        status, headers, content = answer
        self.statuses[status] += 1
        if status == 429 and "retry-after" in headers:
            return await asyncio.sleep(0.5)
        if status != 200:
            return self.report(f"the status {status} for a valid request", f"{str(content)[:200]}: {path} {body}")
        try:
            found = result_of(path, body, content)
        except (ValueError, KeyError) as error:
            return self.report("a wrong format", f"{error!r}: {path} {body}")
        self.counts["answers compared" if expected else "random answers"] += 1
        if expected and found != expected:
            self.report("another answer than before the load", f"{path} {body}: {str(found)[:200]} instead of {str(expected)[:200]}")
        if any(choice["finish"] not in ("stop", "length", "tool_calls") for choice in found.values()):
            self.report("no finish reason", f"{path} {body}")

    async def send_in_parts(self, chance):
        """Sends two requests on a connection. The first part of the second one is sent before the first one is answered."""
        reader, writer = await self.connect()
        (path, body, _, expected), (path2, body2, _, expected2) = chance.choices(self.fixed, k=2)
        data, data2 = request_bytes("POST", path, body), request_bytes("POST", path2, body2)
        cut, cut2 = chance.randrange(1, len(data)), chance.randrange(len(data2))
        try:
            for part in (data[:cut], data[cut:] + data2[:cut2]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(chance.choice((0, 0.001, 0.1)))
            answer = await asyncio.wait_for(read_answer(reader), self.options.patience)
            await self.judge(path, body, answer, False, expected)
            writer.write(data2[cut2:])
            try:
                answer = await asyncio.wait_for(read_answer(reader), self.options.patience)
            except (ConnectionError, EOFError):
                # The server may close a connection that was idle, or sent less than 64 bytes a second, after half a second.
                if cut2 >= 64:
                    raise
                answer = None
            await self.judge(path2, body2, answer, True, expected2)
        except asyncio.TimeoutError:
            self.report(f"no answer within {self.options.patience} s to requests in parts",
                        f"{cut} bytes, then the rest and {cut2} bytes of the next request, then the rest: {data!r} {data2!r}")
        except (ConnectionError, EOFError) as error:
            self.report("the connection was closed without an answer to requests in parts", repr(error))
        writer.close()

    def free_request(self, chance):
        """Returns a request with a random answer."""
        body = {"temperature": chance.choice((0, 0.7, 1.5)), "max_tokens": int(chance.choice((1, 5, 20, 60, 200))),
                "stream": chance.random() < 0.5, "n": chance.choice((1, 1, 1, 2, 8))}
        text = prompt_of(chance, int(chance.choice((1, 10, 50, 200, 600)) * chance.uniform(0.5, 1)))
        if chance.random() < 0.2:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        elif chance.random() < 0.1:
            body["grammar"] = GRAMMAR
        if chance.random() < 0.3:
            body["cache_salt"] = str(chance.random())
        if chance.random() < 0.5:
            return CHAT, {**body, "messages": user(text)}
        return COMPLETION, {**body, "prompt": text}

    async def send_free(self, chance, connection):
        path, body = self.free_request(chance)
        answer = await self.answer_to(request_bytes("POST", path, body), connection)
        await self.judge(path, body, answer, connection is not None)
        return answer is not None

    # Interrupted requests

    async def hang_up(self, chance):
        """Closes the connection after a random byte of the request or of the answer."""
        path, body, length, _ = chance.choice(self.fixed)
        data = request_bytes("POST", path, body)
        if chance.random() < 0.5:
            data = request_bytes("POST", *self.free_request(chance))
        cut = chance.randrange(len(data) + length)
        reader, writer = await self.connect()
        try:
            writer.write(data[:cut])
            await writer.drain()
            left = cut - len(data)
            while left > 0 and (part := await asyncio.wait_for(reader.read(min(left, 4096)), 3)):
                left -= len(part)
        except (ConnectionError, asyncio.TimeoutError):  # the answer may be shorter
            pass
        self.close(chance, writer)

    @staticmethod
    def close(chance, writer):
        if chance.random() < 0.5:
            writer.transport.abort()  # closes without sending what is left
        else:
            writer.close()

    async def cancel_early(self, chance):
        """Closes the connection shortly after a long request, which may still wait."""
        path, body = self.free_request(chance)
        reader, writer = await self.connect()
        try:
            writer.write(request_bytes("POST", path, {**body, "max_tokens": 900, "n": 4}))
            await writer.drain()
            await asyncio.sleep(chance.choice((0, 0.01, 0.2, 1)))
        except ConnectionError:
            pass
        self.close(chance, writer)

    # Malformed requests

    async def send_malformed(self, chance):
        kind, data, allowed = malformed(chance, self.free_request)
        start = time.monotonic()
        reader, writer = await self.connect()
        answer = None
        try:
            writer.write(data)
            await writer.drain()
            reading = asyncio.ensure_future(read_answer(reader))
            if allowed is None:  # the server may wait for more
                await asyncio.wait([reading], timeout=2)
                if not reading.done() and writer.can_write_eof():
                    writer.write_eof()
            answer = await asyncio.wait_for(reading, self.options.patience)
        except asyncio.TimeoutError:
            writer.close()
            return self.report(f"no answer within {self.options.patience} s to a malformed request", f"{kind}: {data!r}")
        except (ConnectionError, EOFError, OSError):
            pass
        writer.close()
        seconds = time.monotonic() - start
        if allowed and seconds > self.slowest[0]:
            self.slowest = (seconds, kind)
        status = answer[0] if answer else 0
        self.statuses[status or "closed"] += 1
        if answer and status != 200:
            try:
                if not json.loads(answer[2])["error"]["message"]:
                    raise ValueError
            except (ValueError, KeyError, TypeError):
                self.report("an error without a message", f"{kind}: {status} {answer[2]!r}")
        if status >= 500 or (allowed and status not in allowed):
            self.report(f"a malformed request was not rejected with {allowed or 'a status below 500'}" if answer else
                        "the connection was closed without an answer to a malformed request",
                        f"{kind}: {status} {answer[2][:200] if answer else ''!r} {data!r}")

    # Clients

    async def run_client(self, number):
        chance = random.Random(self.options.seed * 1000 + number)
        connection = None
        while time.monotonic() < self.end:
            draw = chance.random()
            try:
                if draw < 0.25:
                    self.counts["hung up at a byte"] += 1
                    await self.hang_up(chance)
                elif draw < 0.33:
                    self.counts["cancelled early"] += 1
                    await self.cancel_early(chance)
                elif draw < 0.55:
                    self.counts["malformed"] += 1
                    await self.send_malformed(chance)
                elif draw < 0.6:
                    self.counts["sent in parts"] += 1
                    await self.send_in_parts(chance)
                else:
                    if connection is None and chance.random() < 0.5:
                        connection = await self.connect()
                    fixed = draw < 0.87
                    alive = await (self.send_fixed if fixed else self.send_free)(chance, connection)
                    if connection and (not alive or chance.random() < 0.2):
                        connection[1].close()
                        connection = None
            except asyncio.TimeoutError as error:
                self.report(f"no answer within {self.options.patience} s", str(error))
                if connection:
                    connection[1].close()
                connection = None
            except ConnectionRefusedError:
                return self.report("the server does not accept connections", "")
            except OSError as error:
                self.report("an error of the client", repr(error))
        if connection:
            connection[1].close()

    async def stay_connected(self, slow):
        """Keeps a connection open that sends one byte a second, or nothing."""
        text = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 10_000
        while time.monotonic() < self.end:
            try:
                reader, writer = await self.connect()
                self.counts["slow connections" if slow else "idle connections"] += 1
                for byte in text:
                    if slow:
                        writer.write(bytes([byte]))
                    try:
                        await asyncio.wait_for(reader.read(1), 1)
                        break  # the server has closed the connection
                    except asyncio.TimeoutError:
                        if time.monotonic() > self.end:
                            break
                writer.close()
            except OSError:
                pass
            await asyncio.sleep(1)

    async def request_health(self):
        while time.monotonic() < self.end:
            start = time.monotonic()
            answer = await self.answer_to(request_bytes("GET", "/health"))
            self.latencies.append(time.monotonic() - start)
            if answer is None or answer[0] != 200:
                self.report("/health", str(answer))
            await asyncio.sleep(0.2)

    async def watch_memory(self, samples):
        start = time.monotonic()
        while time.monotonic() < self.end:
            samples.append((time.monotonic() - start, self.server.resident_bytes()))
            await asyncio.sleep(0.2)

    async def run(self, samples):
        self.end = time.monotonic() + self.options.seconds
        tasks = [self.run_client(i) for i in range(self.options.clients)]
        tasks += [self.stay_connected(True) for _ in range(self.options.slow)]
        tasks += [self.stay_connected(False) for _ in range(self.options.idle)]
        for result in await asyncio.gather(*tasks, self.request_health(), self.watch_memory(samples), return_exceptions=True):
            if isinstance(result, BaseException):
                self.report("an error of the client", repr(result))

    async def compare_again(self):
        for path, body, _, expected in self.fixed:
            await self.judge(path, body, await self.answer_to(request_bytes("POST", path, body)), False, expected)


# Malformed requests

def json_value(chance, depth=0):
    """Returns a random JSON value."""
    kind = chance.randrange(8 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return chance.random() < 0.5
    if kind == 2:
        return chance.choice((0, 1, -1, 7, 2**31, 2**63, -2**63, 10**30))
    if kind == 3:
        return chance.choice((0.5, -0.0, 1e308, 1e-308, 1.0))
    if kind < 6:
        return "".join(chance.choices(string.printable + "é😀\0", k=chance.randrange(12)))
    if kind == 6:
        return [json_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {"".join(chance.choices(string.ascii_letters, k=3)): json_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def mutated(chance, data):
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at:at + chance.randrange(6)]
        else:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
    return bytes(data)


WRONG_JSON = [b"", b"{", b"[]", b"null", b"\"text\"", b"{\"prompt\": \"a\"", b"{\"prompt\": \"\xff\xfe\"}", b"{\"prompt\": 1e999999}", b"{'prompt': 1}",
              b"[" * 2000, b"{\"a\":" * 2000, b"{\"a\":" * 200 + b"1" + b"}" * 200, b"{\"prompt\": \"a\"} x", b"\0\0\0", b"{\"prompt\": \"\x01\"}",
              b"{\"prompt\": \"\\ud800\"}", b"\xef\xbb\xbf", b"NaN", b"{\"prompt\": NaN}"]
WRONG_FIELDS = [
    {}, {"prompt": None}, {"prompt": 1}, {"prompt": {}}, {"prompt": [[]]}, {"prompt": [-1]}, {"prompt": [10**9]}, {"prompt": [1, "a"]},
    {"prompt": ["a"] * 65}, {"prompt": "a", "n": 0}, {"prompt": "a", "n": 9}, {"prompt": "a", "n": "1"}, {"prompt": "a", "max_tokens": -1},
    {"prompt": "a", "max_tokens": 2**40}, {"prompt": "a", "temperature": -1}, {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "top_p": 2},
    {"prompt": "a", "stop": [""]}, {"prompt": "a", "stop": ["x"] * 17}, {"prompt": "a", "stop": 1}, {"prompt": "a", "logit_bias": {"x": 1}},
    {"prompt": "a", "logit_bias": {"1": 101}}, {"prompt": "a", "logit_bias": []}, {"prompt": "a", "logprobs": 21}, {"prompt": "a", "stream": 1},
    {"prompt": "a", "seed": 1.5}, {"prompt": "a", "seed": 2**64}, {"prompt": "a", "best_of": 2}, {"prompt": "a", "mirostat": 2},
    {"prompt": "a", "suffix": "b", "echo": True}, {"prompt": "a", "echo": True, "logprobs": 1}, {"prompt": "a", "response_format": {"type": "xml"}},
    {"prompt": "a", "response_format": {"type": "json_schema"}}, {"prompt": "word " * 30_000}, {"prompt": "", "cache_salt": 1},
]
WRONG_CHATS = [
    {}, {"messages": []}, {"messages": "a"}, {"messages": [1]}, {"messages": [{}]}, {"messages": [{"role": "user"}]},
    {"messages": [{"role": "robot", "content": "a"}]}, {"messages": [{"role": "user", "content": 1}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}]},
    {"messages": user("a"), "tools": [1]}, {"messages": user("a"), "tools": {}}, {"messages": user("a"), "tool_choice": "any"},
    {"messages": user("a"), "top_logprobs": 2}, {"messages": user("a"), "logprobs": True, "top_logprobs": 21},
    {"messages": user("a"), "chat_template_kwargs": {"messages": []}}, {"messages": user("a"), "chat_template": "x"},
    {"messages": user("a"), "functions": [{"name": "f"}]}, {"messages": user("a"), "max_tokens": 0}, {"messages": user("word " * 30_000)},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
]
WRONG_EMBEDDINGS = [
    {}, {"input": None}, {"input": []}, {"input": 1}, {"input": {}}, {"input": ["a", 1]}, {"input": [-1]},
    {"input": [10**9]}, {"input": ["a"] * 2049}, {"input": "a", "encoding_format": "int8"}, {"input": "a", "dimensions": 7},
    {"input": "word " * 30_000}, {"input": ["a", "index " * 2000]}, {"input": "a", "truncate_prompt_tokens": 5},
]
WRONG_SCHEMAS = [
    1, "a", [], {"type": "thing"}, {"not": {}}, {"patternProperties": {}}, {"properties": []}, {"required": "a"}, {"$ref": "#/$defs/a"},
    {"$ref": "file:///etc/passwd"}, {"type": "string", "pattern": "("}, {"type": "string", "pattern": "(a*)*" * 3000 + "("},
    {"type": "string", "minLength": 10**9}, {"type": "array", "minItems": 10**9}, {"type": "string", "maxLength": 90_000},
    {"type": "integer", "minimum": 1e300}, {"enum": []}, {"allOf": []}, {"anyOf": [{}] * 3000 + [1]}, {"type": "array", "items": [{}]},
    {"type": "object", "properties": {"a" * 70_000: {}}}, {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}, "$ref": "#/$defs/a"},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"type": "string", "format": "email"}, False, {"type": []},
]
WRONG_GRAMMARS = [
    "root", "root ::= other", "root ::= root \"a\"", "other ::= \"a\"", "root ::= \"a", "root ::= [a", "root ::= (\"a\"", "root ::= \"a\"{3,2}",
    "root ::= \"a\"{1000000}", "root ::= " + "(" * 5000, "root ::= a\na ::= b\nb ::= a", "root ::= \"\\x\"", "root ::= [z-a]", "\0", "root ::= <tok>",
    "root ::= " + "(" * 20 + "[a-z]" + "{100})" * 20, "root ::= \"a\" | | *", "root ::= \"a\"\nroot ::= \"b\"",
]


def malformed(chance, free_request):
    """Returns a kind, the bytes to send, and the allowed statuses (0: closed without an answer), or None if all statuses below
    500 are allowed."""
    kind = chance.randrange(12)
    if kind == 0:
        return "random bytes", bytes(chance.randrange(256) for _ in range(chance.randrange(1, 3000))), None
    if kind == 1:
        path, body = free_request(chance)
        return "a mutated request", mutated(chance, request_bytes("POST", path, {**body, "max_tokens": 3})), None
    if kind == 2:
        path, body = free_request(chance)
        body["max_tokens"] = 3
        for _ in range(chance.randint(1, 3)):
            more = ("stop", "logit_bias", "seed", "tools", "stream_options", "logprobs", "top_k", "chat_template_kwargs")
            body[chance.choice((*body, *more))] = json_value(chance)
        return "random fields", request_bytes("POST", path, body), None
    if kind == 3:
        body = chance.choice(WRONG_JSON)
        return f"the body {body[:40]!r}", request_bytes("POST", chance.choice((COMPLETION, CHAT, EMBEDDING, "/tokenize")), body), (400,)
    if kind == 4:
        body = chance.choice(WRONG_FIELDS)
        return f"the completion {str(body)[:80]}", request_bytes("POST", COMPLETION, body), (400,)
    if kind == 5:
        if chance.random() < 0.4:
            body = chance.choice(WRONG_EMBEDDINGS)
            return f"the embedding {str(body)[:80]}", request_bytes("POST", EMBEDDING, body), (400,)
        body = chance.choice(WRONG_CHATS)
        return f"the chat {str(body)[:80]}", request_bytes("POST", CHAT, body), (400,)
    if kind == 6:
        schema = chance.choice(WRONG_SCHEMAS)
        format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        return f"the schema {str(schema)[:80]}", request_bytes("POST", CHAT, {"messages": user("a"), "response_format": format}), (400,)
    if kind == 7:
        grammar = chance.choice(WRONG_GRAMMARS)
        return f"the grammar {grammar[:60]!r}", request_bytes("POST", COMPLETION, {"prompt": "a", "grammar": grammar}), (400,)
    if kind == 8:
        grammar = mutated(chance, (GRAMMAR * chance.randint(1, 3)).encode()).decode(errors="replace")
        return "a mutated grammar", request_bytes("POST", COMPLETION, {"prompt": "a", "grammar": grammar, "max_tokens": 3}), None
    if kind == 9:
        schema = mutated(chance, json.dumps(SCHEMA).encode()).decode(errors="replace")
        return "a mutated schema", request_bytes("POST", COMPLETION, {"prompt": "a", "json_schema": schema, "max_tokens": 3}), None
    start = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    return chance.choice([
        ("a long head", start + b"X: " + b"a" * 20_000 + b"\r\n\r\n", (431,)),
        ("many headers", start + b"".join(b"X%d: a\r\n" % i for i in range(3000)) + b"\r\n", (431,)),
        ("a long target", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (431,)),
        ("a long body", start + b"Content-Length: 20000000\r\n\r\n", (413,)),
        ("a very long body", start + b"Content-Length: 99999999999999999999999\r\n\r\n", (400, 413)),
        ("a negative length", start + b"Content-Length: -1\r\n\r\n", (400,)),
        ("two lengths", start + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", (400,)),
        ("length and chunks", start + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
        ("a wrong chunk", start + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", (400,)),
        ("a long chunk", start + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", (400, 413)),
        ("gzip", start + b"Transfer-Encoding: gzip\r\n\r\n", (400,)),
        ("a control character", start + b"X: a\x01b\r\n\r\n", (400,)),
        ("no host", b"GET /health HTTP/1.1\r\n\r\n", (400,)),
        ("another host", b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", (403,)),
        ("another origin", request_bytes("POST", COMPLETION, {"prompt": "a"}, ["Origin: https://evil.example"]), (403,)),
        ("another path", b"GET /" + SECRET.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (404,)),
        ("another method", b"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", (405,)),
        ("another model", request_bytes("POST", COMPLETION, {"prompt": "a", "model": SECRET}), (404,)),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n", (0, 400)),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (0, 400)),
    ])


def check_rest(server, load, samples, options, before):
    """Returns rows of (what, value, whether it is right) for the time after the load."""
    rows = []
    end = time.monotonic() + 30
    while True:
        metrics, descriptors = server.metrics(), server.descriptors()
        left = {name: int(metrics[name]) for name in ("queued_requests", "running_sequences", "used_cache_pages", "shared_cache_pages")}
        done = not any(left.values()) and descriptors <= before and metrics["connections"] <= 1
        if done or time.monotonic() > end:
            break
        time.sleep(0.2)
    rows += [(name.replace("_", " "), value, value == 0) for name, value in left.items()]
    rows.append(("connections, with that of this request", int(metrics["connections"]), metrics["connections"] <= 1))
    rows.append(("descriptors", f"{descriptors} ({before} before)", descriptors <= before))
    failed = int(metrics['requests_total{outcome="failed"}'])
    rows.append(("failed requests", failed, failed == 0))
    early = max(size for at, size in samples if at <= samples[-1][0] / 3) / 2**20
    late = statistics.median(size for at, size in samples if at >= samples[-1][0] * 0.9) / 2**20
    growth = 100 * (late / early - 1)
    rows.append(("memory", f"at most {early:.0f} MiB in the first third, {late:.0f} MiB at the end ({growth:+.1f} %)",
                 growth <= options.growth))
    asyncio.run(load.compare_again())
    wrong = sum(map(len, load.wrong.values()))
    rows.append(("errors during the load", wrong, wrong == 0))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/tessera", help="tessera (default: %(default)s)")
    parser.add_argument("--model", type=Path, default=ROOT / "models/pgdocs-2m-q8_0.gguf", help="a GGUF file (default: %(default)s)")
    parser.add_argument("--template", default="chatml", help="its chat template (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="clients (default: %(default)s)")
    parser.add_argument("--idle", type=int, default=256, help="connections that send nothing (default: %(default)s)")
    parser.add_argument("--slow", type=int, default=256, help="connections that send one byte a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="duration (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=30, help="maximum seconds of an answer (default: %(default)s)")
    parser.add_argument("--growth", type=float, default=5, help="maximum growth of the memory in percent (default: %(default)s)")
    parser.add_argument("--queue", type=int, default=48, help="option of the server (default: %(default)s)")
    parser.add_argument("--parallel", type=int, default=16, help="option of the server (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another seed sends other requests (default: %(default)s)")
    options = parser.parse_args()
    use_only_loopback()
    server = ServeProgram(options.program, options.model,
                          ["--template", options.template, "--queue", options.queue, "--parallel", options.parallel])
    load, samples = Load(server, options), []
    asyncio.run(load.find_reference())
    server.wait_until_idle()
    time.sleep(0.5)  # connections are closed
    before = server.descriptors()
    asyncio.run(load.run(samples))
    rows = check_rest(server, load, samples, options, before) if server.process.poll() is None else []
    generated = int(server.metrics()["generated_tokens_total"]) if rows else 0
    problems = server.end()
    if SECRET in server.log_text():
        problems.append("the log contains text of a request")
    print(load.report_text() + "\n".join(problems))
    print_table(("requests and connections", "number"), sorted(load.counts.items())
                + [(f"status {status}", number) for status, number in sorted(load.statuses.items(), key=str)] + [("tokens", generated)])
    print()
    print_table(("afterwards", "value", "result"), [(a, b, "ok" if good else "FAILED") for a, b, good in rows])
    if load.latencies:
        times = sorted(1000 * seconds for seconds in load.latencies)
        print(f"/health, in ms: median {times[len(times) // 2]:.1f}, 99 % {times[len(times) * 99 // 100]:.1f}, maximum {times[-1]:.1f}; "
              f"slowest rejection: {load.slowest[0]:.2f} s ({load.slowest[1]})")
    good = rows and all(good for _, _, good in rows) and not problems
    print("no errors" if good else "there are errors")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
