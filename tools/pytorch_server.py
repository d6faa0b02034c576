# SPDX-License-Identifier: Apache-2.0
"""Helpers for scripts that time PyTorch and Tessera alternately. Each runs in its own process, which is stopped (SIGSTOP)
while the other is timed."""
import os
import signal
import subprocess
import sys
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)


class Server:
    """A process that answers each line with a line, and is stopped in between. With `memory`, it returns freed memory to the
    system immediately, so that its resident memory is the memory in use. This makes it slower."""

    def __init__(self, command, threads, memory=False):
        env = {name: str(threads) for name in ("TESSERA_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if memory:
            env |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **env})
        self.first = self.process.stdout.readline().strip()
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, *words):
        """Sends a line and returns the numbers in the answer."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = [float(number) for number in self.process.stdout.readline().split()]
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def processor_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return sum(int(fields[i]) for i in range(11, 15)) / os.sysconf("SC_CLK_TCK")  # includes its child processes

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def seconds_of_others(*servers):
    """Returns the processor seconds that other processes have used on all cores."""
    fields = open("/proc/stat").readline().split()[1:9]
    busy = sum(int(v) for i, v in enumerate(fields) if i not in (3, 4)) / os.sysconf("SC_CLK_TCK")
    return busy - sum(server.processor_seconds() for server in servers)


def resident(what):
    """Returns the resident memory of this process in bytes: VmRSS is the current value, VmHWM the peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what))


def answer(first, call_of):
    """Reads lines "WORDS... SECONDS" and times call_of(*WORDS). Answers with the microseconds of a call, its processor
    microseconds, and its peak memory in bytes without the memory that was allocated before."""
    print(first, flush=True)
    for line in sys.stdin:
        *words, seconds = line.split()
        call = call_of(*words)
        for limit in (0.06, float(seconds)):  # the first round warms up
            start, used, count = time.perf_counter(), time.process_time(), 0
            while True:
                call()
                count += 1
                spent = time.perf_counter() - start
                if spent >= limit:
                    break
        used = time.process_time() - used
        before = resident("VmRSS")
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        call()
        print(spent * 1e6 / count, used * 1e6 / count, resident("VmHWM") - before, flush=True)
