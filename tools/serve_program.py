# SPDX-License-Identifier: Apache-2.0
"""Helpers for scripts that check `tessera serve`: run it, create models for it, and print tables. They use only Python's
standard library."""
import atexit
import http.client
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

SANITIZER_REPORTS = ("AddressSanitizer", "ThreadSanitizer", "LeakSanitizer", "UndefinedBehaviorSanitizer", "runtime error:")


def use_only_loopback():
    """Makes this process and its child processes ignore proxies, and raises an error if this process connects to another
    machine."""
    for name in list(os.environ):
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"

    def check(event, arguments):
        if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] not in ("127.0.0.1", "::1", "localhost"):
            raise PermissionError(f"a connection to {arguments[1][0]}, which is not this machine")
    sys.addaudithook(check)


class ServeProgram:
    """A running `tessera serve` with a free port of 127.0.0.1. Its log is in a temporary file."""

    def __init__(self, program, model, arguments=(), key=None, wait=300):
        self.key = key
        self.log = tempfile.TemporaryFile()
        environment = dict(os.environ)
        environment.pop("TESSERA_API_KEY", None)
        if key:
            environment["TESSERA_API_KEY"] = key
        # Freed memory that AddressSanitizer keeps would look like a leak.
        environment.setdefault("ASAN_OPTIONS", "quarantine_size_mb=16")
        command = [str(program), "serve", str(model), "--host", "127.0.0.1", "--port", "0", "--device", "cpu", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        atexit.register(self.process.kill)  # if the caller fails
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://"):
            self.process.kill()
            sys.exit(f"{' '.join(command)}\ndid not start:\n{self.log_text()}")
        self.port = int(line.rsplit(":", 1)[1])
        self.url = f"http://127.0.0.1:{self.port}"
        end = time.monotonic() + wait
        while self.get("/health")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                sys.exit(f"{' '.join(command)}\ndid not load the model:\n{self.log_text()}")
            time.sleep(0.05)

    def request(self, method, path, body=None, headers=None, timeout=300):
        """Sends a request, with the key. Returns the status and the body of the response."""
        headers = dict(headers or {})
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (ConnectionError, http.client.HTTPException) as e:
            if self.process.poll() is None:
                raise
            return 0, str(e).encode()
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body):
        """Sends a JSON value. Returns the status and the JSON value of the response."""
        status, answer = self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return status, json.loads(answer)

    def metrics(self):
        """Returns the metrics without labels, and the number of requests by outcome."""
        out = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name.removeprefix("tessera_")] = float(value)
        return out

    def wait_until_idle(self, seconds=30):
        """Waits until no request waits or runs. Returns False if this takes longer."""
        end = time.monotonic() + seconds
        while True:
            metrics = self.metrics()
            if metrics["queued_requests"] + metrics["running_sequences"] == 0:
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.02)

    def descriptors(self):
        """Returns the number of open descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def log_text(self):
        self.log.flush()
        return os.pread(self.log.fileno(), 1 << 30, 0).decode(errors="replace")

    def end(self, wait=60):
        """Stops the server by SIGTERM. Returns what is wrong with how it ended, as a list of texts."""
        problems = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        else:
            problems.append(f"the server ended by itself with the status {self.process.returncode}")
        try:
            status = self.process.wait(wait)
            if status != 0 and not problems:
                problems.append(f"after SIGTERM the server ended with the status {status}")
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            problems.append(f"the server did not end within {wait} s after SIGTERM")
        log = self.log_text().splitlines()
        reports = [i for i, line in enumerate(log) if any(name in line for name in SANITIZER_REPORTS)]
        if reports:
            problems.append("a sanitizer reported an error:\n" + "\n".join(log[reports[0]:reports[0] + 60]))
        elif problems:
            problems.append("the end of its log:\n" + "\n".join(log[-20:]))
        return problems


def write_random_model(program, path, **sizes):
    """Runs the program random_model. `sizes` are its options, such as width=64."""
    options = [text for name, value in sizes.items() for text in ("--" + name.replace("_", "-"), str(value))]
    subprocess.run([str(program), str(path), *options], check=True)


def print_table(head, rows):
    """Prints rows of texts with aligned columns."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *rows]) for i in range(len(head))]
    for row in [list(head), ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    """Returns the type number and the bytes of a metadata value: int (u32), str, or a list of int (i32) or str."""
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, str):
        return 8, gguf_string(value)
    if value and isinstance(value[0], int):
        return 9, struct.pack(f"<IQ{len(value)}i", 5, len(value), *value)
    return 9, struct.pack("<IQ", 8, len(value)) + b"".join(map(gguf_string, value))


def write_gguf(path, metadata, tensors):
    """Writes a GGUF file. `tensors` maps names to (dimensions, row length first; list of floats)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        number, data = gguf_value(value)
        head += gguf_string(key) + struct.pack("<I", number) + data
    contents = b""
    for name, (dimensions, values) in tensors.items():
        head += gguf_string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, 0, len(contents))
        contents += struct.pack(f"<{len(values)}f", *values)
        contents += bytes(-len(contents) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + contents)


def byte_level_text(text):
    """Replaces each byte by the character that byte-level BPE uses for it."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return "".join(characters[byte] for byte in (text if isinstance(text, bytes) else text.encode()))


def write_scripted_model(path, special, lines, template):
    """Writes a model in which each token has a fixed successor (as tests/support/scripted_model.h). `special` contains the
    control tokens; the first one ends an answer. `lines` contains sequences of control tokens and words."""
    tokens = list(special) + [byte_level_text(bytes([byte])) for byte in range(256)]

    def id_of(text):
        name = text if text in special else byte_level_text(text)
        if name not in tokens:
            tokens.append(name)
        return tokens.index(name)
    steps = [(id_of(a), id_of(b)) for line in lines for a, b in zip(line, line[1:])]
    width, hidden = 64, 32
    chance = random.Random(1)
    embedding = [chance.choice((-1.0, 1.0)) for _ in range(len(tokens) * width)]
    output = [0.0] * len(embedding)
    for a, b in steps:
        for i in range(width):
            output[b * width + i] += embedding[a * width + i]
    metadata = {
        "general.architecture": "llama", "llama.context_length": 4096, "llama.embedding_length": width, "llama.block_count": 1,
        "llama.feed_forward_length": hidden, "llama.attention.head_count": 2, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i < len(special) else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": [], "tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": template,
    }
    ones = ([width], [1.0] * width)
    tensors = {"token_embd.weight": ([width, len(tokens)], embedding), "output.weight": ([width, len(tokens)], output),
               "output_norm.weight": ones, "blk.0.attn_norm.weight": ones, "blk.0.ffn_norm.weight": ones}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors[f"blk.0.{name}.weight"] = ([width, width], [0.0] * (width * width))
    for name, dimensions in (("ffn_gate", [width, hidden]), ("ffn_up", [width, hidden]), ("ffn_down", [hidden, width])):
        tensors[f"blk.0.{name}.weight"] = (dimensions, [0.0] * (width * hidden))
    write_gguf(path, metadata, tensors)


TOOL_TOKENS = ["<|im_end|>", "<|im_start|>", "<|ask|>", "<|tell|>", "<tool_call>", "</tool_call>", "<think>", "</think>"]
TOOL_TEMPLATE = ("{% if tools %}<|im_start|>tools\n{{ tools | tojson }} as <tool_call><|im_end|>{% endif %}"
                 "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                 "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>"
                 "{% endfor %}{% if add_generation_prompt %}"
                 "{{ '<|tell|>' if messages[-1].role == 'tool' or not tools else '<|ask|>' }}{% endif %}")


def write_weather_model(path):
    """Writes a model that requests the weather in Zürich from the function get_weather, and then answers "It is warm."."""
    call = ["<|ask|>", "Let me ", "see.\n", "<tool_call>", "\n{\"name\": \"get_weather\", ",
            "\"arguments\": {\"town\": \"Zürich\"}}\n", "</tool_call>", "<|im_end|>"]
    write_scripted_model(path, TOOL_TOKENS, [call, ["<|tell|>", "It is ", "warm.", "<|im_end|>"]], TOOL_TEMPLATE)


def write_uniform_model(path):
    """Writes a model with the same template for which all tokens, the bytes, are equally likely."""
    write_scripted_model(path, TOOL_TOKENS, [], TOOL_TEMPLATE)
