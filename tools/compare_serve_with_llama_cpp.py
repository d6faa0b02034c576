#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rates of `tessera serve` and llama.cpp's llama-server with the same GGUF file.

--clients clients send one request each at the same time, and wait for the whole text. The rate is the number of generated
tokens divided by the time from the first request to the last answer. Both servers are loaded and are measured alternately;
the one that is not measured is stopped (SIGSTOP). Then one client is compared with `tessera generate`, also alternately.
Prints the medians of the ratios, with their range.

Example:
  tools/compare_serve_with_llama_cpp.py model-q8_0.gguf --llama llama.cpp/build/bin/llama-server
"""
from __future__ import annotations

import argparse
import atexit
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from serve_program import ServeProgram, use_only_loopback

ROOT = Path(__file__).resolve().parent.parent


class LlamaServer:
    """A running llama-server. `context` is the number of tokens of each sequence."""

    def __init__(self, program, model, clients, context, threads):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(self.port), "-np", str(clients),
                   "-c", str(clients * context), "-t", str(threads), "-tb", str(threads), "--no-webui"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        end = time.monotonic() + 300
        while True:
            time.sleep(0.2)
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{' '.join(command)} did not start")
            try:
                if post(self.port, "GET", "/health")[0] == 200:
                    return
            except OSError:
                pass


def post(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def prompt_of(chance, tokens):
    return [chance.randrange(256, 2000) for _ in range(tokens)]


def rate(server, clients, options, chance):
    """Sends a completion of each client. Returns the generated tokens per second."""
    counts = [0] * clients

    def send(i, prompt):
        body = {"prompt": prompt, "max_tokens": options.tokens, "temperature": 0, "stream": False}
        status, answer = post(server.port, "POST", "/v1/completions", body)
        if status != 200:
            sys.exit(f"status {status}: {answer}")
        counts[i] = answer["usage"]["completion_tokens"]
    threads = [threading.Thread(target=send, args=(i, prompt_of(chance, options.prompt))) for i in range(clients)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    if sum(counts) < clients * options.tokens * 0.9:
        sys.exit(f"texts ended early: {counts}")
    return sum(counts) / seconds


def rate_of_generate(options):
    """Returns the tokens per second that `tessera generate` reports for its answer."""
    command = [str(options.program), "generate", str(options.model), "-p", "The index", "-n", str(options.tokens), "--temperature", "0",
               "--ctx", str(options.context), "--device", "cpu"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return float(re.search(r"generated .* ([0-9.]+) tokens/s", out)[1])


def rate_of_one(server, options):
    """Returns the tokens per second that the server reports for the same answer."""
    status, answer = post(server.port, "POST", "/v1/completions",
                          {"prompt": "The index", "max_tokens": options.tokens, "temperature": 0})
    if status != 200:
        sys.exit(f"status {status}: {answer}")
    return answer["timings"]["predicted_per_second"]


def report(name, ratios):
    ratios = sorted(ratios)
    print(f"{name}: {ratios[len(ratios) // 2]:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)
    return ratios[len(ratios) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--llama", type=Path, help="llama-server; without it, only one client is compared with `tessera generate`")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/tessera", help="tessera (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=16, help="clients (default: %(default)s)")
    parser.add_argument("--context", type=int, default=512, help="tokens of each sequence (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of each prompt (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each text (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    options = parser.parse_args()
    use_only_loopback()
    os.environ["TESSERA_THREADS"] = str(options.threads)
    servers = {"tessera": ServeProgram(options.program, options.model, ["--parallel", options.clients, "--ctx", options.context])}
    if options.llama:
        servers["llama.cpp"] = LlamaServer(options.llama, options.model, options.clients, options.context, options.threads)
    chance = random.Random(1)
    for server in servers.values():
        rate(server, 2, options, chance)  # compiles kernels, reads the file
        server.process.send_signal(signal.SIGSTOP)
    ratios, ones = [], []
    for _ in range(options.rounds):
        rates = {}
        for name, server in servers.items():
            server.process.send_signal(signal.SIGCONT)
            rates[name] = rate(server, options.clients, options, chance)
            if name == "tessera":
                one = rate_of_one(server, options)
            server.process.send_signal(signal.SIGSTOP)
        alone = rate_of_generate(options)
        print(", ".join(f"{name} {value:.1f}" for name, value in rates.items()), f"tokens/s with {options.clients} clients;",
              f"one client {one:.2f}, generate {alone:.2f} tokens/s", flush=True)
        ones.append(one / alone)
        if options.llama:
            ratios.append(rates["tessera"] / rates["llama.cpp"])
    good = report("one client relative to generate", ones) >= 0.97
    if ratios:
        good = report(f"{options.clients} clients relative to llama-server", ratios) >= 1 and good
    for server in servers.values():
        server.process.send_signal(signal.SIGCONT)
    servers["tessera"].end()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
