# SPDX-License-Identifier: Apache-2.0
"""For scripts that time PyTorch and this library alternately: each has its own process, which is stopped (SIGSTOP) while
the other is timed."""
import os
import signal
import subprocess
import sys
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)


class Server:
    """A program that answers lines and is stopped between them. With `memory`, it returns freed memory to the system at
    once, so that its resident memory equals the memory in use (and it is slower)."""

    def __init__(self, command, threads, memory=False):
        env = {name: str(threads) for name in ("TESSERA_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if memory:
            env |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **env})
        self.first = self.process.stdout.readline().strip()
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, *words):
        """The numbers of the answer."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = [float(number) for number in self.process.stdout.readline().split()]
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def processor_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return sum(int(fields[i]) for i in range(11, 15)) / os.sysconf("SC_CLK_TCK")  # with those of its child processes

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def seconds_of_others(*servers):
    """Processor seconds of all cores, without those of the servers."""
    fields = open("/proc/stat").readline().split()[1:9]
    busy = sum(int(v) for i, v in enumerate(fields) if i not in (3, 4)) / os.sysconf("SC_CLK_TCK")
    return busy - sum(server.processor_seconds() for server in servers)


def resident(what):
    """Bytes of this process's resident memory: VmRSS now, VmHWM at its peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what))


def answer(first, call_of):
    """Reads lines "WORDS... SECONDS"; answers with the microseconds of a call of call_of(*WORDS), its processor
    microseconds, and its peak bytes beyond those allocated before."""
    print(first, flush=True)
    for line in sys.stdin:
        *words, seconds = line.split()
        call = call_of(*words)
        for limit in (0.06, float(seconds)):  # warm-up calls
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
