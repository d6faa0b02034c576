#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long clients of `tessera serve` wait while another client's long prompt is read.

--streams texts are generated while prompts of --prompt tokens are read, one after another, and then embeddings of --embeddings
texts are computed, whose answer is long. Meanwhile, two connections request /health and /metrics again and again. Then a prompt that begins with --prefix tokens is sent twice with different ends.

It is checked that
- each text receives a token at least every two steps of --batch tokens, and texts and prompts make progress together;
- /health and /metrics answer within --within milliseconds (99 of 100 requests, and with --strict all of them; the time in which the
  measuring process itself waits for a core is not counted);
- the second prompt with the same begin has its first token after at most a tenth of the time of the first one.

The exit status is 1 if a check fails. Use a model whose context has room for the prompt, for example
  build/release/bin/random_model /tmp/model.gguf --context 8192
  tools/check_latency.py /tmp/model.gguf
"""
from __future__ import annotations

import argparse
import ctypes
import http.client
import json
import multiprocessing
import os
import random
import struct
import sys
import threading
import time
from pathlib import Path

from serve_program import ServeProgram, print_table, use_only_loopback

ROOT = Path(__file__).resolve().parent.parent


def token_ids(seed, count):
    chance = random.Random(seed)
    return [chance.randrange(256, 2000) for _ in range(count)]


def stream(server, body, on_token):
    """Sends a streamed completion, and calls `on_token` for each event with text. Returns when the stream has ended or
    `on_token` returns False."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True, "temperature": 0}))
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"status {response.status}: {response.read().decode()}")
    try:
        while line := response.readline():
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"] and on_token() is False:
                return
    finally:
        connection.close()


def time_to_first_token(server, prompt):
    start, first = time.monotonic(), []
    stream(server, {"prompt": prompt, "max_tokens": 1}, lambda: first.append(time.monotonic()))
    return (first[0] if first else time.monotonic()) - start


def request_short_slices():
    """Makes this process run soon when it wakes on an occupied core (Linux 6.12), so that only the server's delays are measured."""
    attributes = struct.pack("<IIQiIQQQ", 48, 0, 0, 0, 0, 500_000, 0, 0)
    ctypes.CDLL(None).syscall(314, 0, attributes, 0)  # sched_setattr on x86-64


def waits_for_cores(thread):
    """Returns a function that returns the seconds that a thread has waited for a core although it could run."""
    file = os.open(f"/proc/{thread}/schedstat", os.O_RDONLY)
    return lambda: int(os.pread(file, 100, 0).split()[1]) / 1e9


def poll(server_id, port, path, stop, results):
    """Requests a page on one connection, with pauses of 5 ms, until `stop` is set. Runs in a process of its own, because the
    threads of a Python process wait for each other. Sends the start, the seconds, and the seconds without a core of the server's
    thread and of this process, of each request to `results`."""
    request_short_slices()
    waits = [waits_for_cores(f"{server_id}/task/{server_id}"), waits_for_cores("self")]
    connection, answers = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    connection.connect()
    while not stop.is_set():
        before = [wait() for wait in waits]
        start = time.monotonic()
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        answers.append((start, time.monotonic() - start, *(wait() - b for wait, b in zip(waits, before))))
        if response.status != 200:
            sys.exit(f"{path}: status {response.status}")
        time.sleep(0.005)
    results.put((path, answers))


def read_prompts_beside_texts(server, options):
    """Returns the times of tokens of each text, the intervals in which prompts were read, and what poll() sends by path."""
    times, threads, stop, results = [[] for _ in range(options.streams)], [], multiprocessing.Event(), multiprocessing.Queue()
    polls = [multiprocessing.Process(target=poll, args=(server.process.pid, server.port, path, stop, results), daemon=True) for path in ("/health", "/metrics")]
    for i in range(options.streams):
        def on_token(i=i):
            times[i].append(time.monotonic())
            return not stop.is_set()
        body = {"prompt": token_ids(i, 8), "max_tokens": options.context - 8}
        threads.append(threading.Thread(target=stream, args=(server, body, on_token), daemon=True))
        threads[-1].start()
    while not all(len(t) > 2 for t in times):
        time.sleep(0.01)
    for process in polls:
        process.start()
    intervals = []
    for n in range(options.prompts):
        start = time.monotonic()
        time_to_first_token(server, token_ids(1000 + n, options.prompt))
        intervals.append((start, time.monotonic()))
    status, answer = server.post("/v1/embeddings", {"input": [[256 + i] for i in range(options.embeddings)]})
    if status != 200:
        sys.exit(f"/v1/embeddings: {answer}")
    stop.set()
    for thread in threads:
        thread.join()
    return times, intervals, dict(results.get(timeout=60) for _ in polls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/tessera", help="tessera (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=4, help="texts that are generated meanwhile (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of each prompt (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=2, help="number of prompts (default: %(default)s)")
    parser.add_argument("--embeddings", type=int, default=200, help="texts of the request for embeddings (default: %(default)s)")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens of the shared prefix (default: %(default)s)")
    parser.add_argument("--context", type=int, default=8192, help="maximum tokens of a text (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="tokens of a step of the server (default: %(default)s)")
    parser.add_argument("--within", type=float, default=20, help="milliseconds of an answer (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="limit the slowest answer, too")
    options = parser.parse_args()
    use_only_loopback()
    server = ServeProgram(options.program, options.model, ["--parallel", 16, "--ctx", options.context, "--batch", options.batch])
    time_to_first_token(server, token_ids(99, min(600, options.prompt)))  # compiles kernels
    times, intervals, polls = read_prompts_beside_texts(server, options)
    server.wait_until_idle()
    rows = []
    steps = -(-options.prompt // (options.batch - options.streams))
    for start, end in intervals:
        counts = [sum(start <= t <= end for t in of_text) for of_text in times]
        gaps = [b - a for of_text in times for a, b in zip(of_text, of_text[1:]) if a < end and b > start]
        rows.append((f"tokens of each text during {steps} steps of a prompt", f"{min(counts)} to {max(counts)}, in {end - start:.1f} s",
                     min(counts) >= steps // 2))
        rows.append(("longest time between two tokens, in steps", f"{max(gaps) / ((end - start) / steps):.2f} ({max(gaps):.2f} s)",
                     max(gaps) <= 2 * 1.5 * (end - start) / steps))  # later steps take longer than the mean
    for path, answers in sorted(polls.items()):
        for phase in ("prompts", "embeddings"):
            chosen = sorted(([1000 * (seconds - client), 1000 * waited, 1000 * client] for start, seconds, waited, client in answers
                             if (start < intervals[-1][1]) == (phase == "prompts")))
            slowest, high = chosen[-1], chosen[len(chosen) * 99 // 100][0]
            rows.append((f"{path} during {phase}, in ms",
                         f"median {chosen[len(chosen) // 2][0]:.1f}, 99 % {high:.1f}, maximum {slowest[0]:.1f} (server without a core: "
                         f"{slowest[1]:.1f}) of {len(chosen)}; client without a core: at most {max(c[2] for c in chosen):.1f}",
                         (slowest[0] if options.strict else high) <= options.within))
    prefix = token_ids(5000, options.prefix)
    first, second = (time_to_first_token(server, prefix + token_ids(end, 10)) for end in (6000, 6001))
    rows.append((f"first token after {options.prefix} tokens", f"{first:.2f} s, again {second:.2f} s: {second / first:.3f}", second <= 0.1 * first))
    problems = server.end()
    print("\n".join(problems))
    print_table(("measured", "value", "result"), [(a, b, "ok" if good else "FAILED") for a, b, good in rows])
    return 0 if all(good for _, _, good in rows) and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
