"""A system beside gpufleet, or a client of the fleet, and its conversation with gpufleet-bench.

Requests come as lines of JSON on standard input, and each gets one line of JSON as its answer. The system ends with its input.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import time

import work

START_SECONDS = 60
FETCH_SECONDS = 60
STOP_SECONDS = 10
POLL_SECONDS = 0.02


class Side:
    """A system. Subclasses start it, submit jobs, fetch results, kill a worker and look at the history."""

    #: A job counts as lost once no job has begun or ended for this long.
    silence_seconds = 15

    def __init__(self):
        self.folder = os.environ["BENCH_FOLDER"]
        self.processes = []
        self.submitted = 0

    def start(self):
        """Returns what is to be said about versions and settings."""
        raise NotImplementedError

    def submit(self, number, milliseconds):
        raise NotImplementedError

    def fetch(self, handle, seconds):
        """The result, or None if it is not there within the time."""
        raise NotImplementedError

    def kill_worker(self, runs):
        """Kills a worker that has a job in hand. `runs` are those that began so far."""
        raise NotImplementedError

    def history(self):
        """How many of the jobs that were submitted can be listed now."""
        raise NotImplementedError

    def submit_all(self, numbers, milliseconds):
        return [(number, self.submit(number, milliseconds)) for number in numbers]

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def spawn(self, *command):
        """Starts a process of the system in a process group of its own, with its output in a file."""
        log = open(f"{os.environ['BENCH_LOG_PREFIX']}-{len(self.processes)}.log", "wb")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self.processes.append(process)
        return process

    # The measurements, the same for all.

    def run(self, jobs, in_flight):
        """So many jobs, so many at a time. A round trip is from the call that submits a job until its result is here."""
        trips = []
        started = time.perf_counter()
        first = min(jobs, in_flight)
        pending = collections.deque((*job, started) for job in self.submit_all(range(first), 0))
        for number in range(first, jobs + first):
            answered, handle, begun = pending.popleft()
            self.fetched(answered, handle)
            now = time.perf_counter()
            trips.append((now - begun) * 1000)
            if number < jobs:
                pending.extend((*job, now) for job in self.submit_all([number], 0))
        self.submitted += jobs
        return {"seconds": time.perf_counter() - started, "round_trips_ms": trips}

    def fetched(self, number, handle):
        result = self.fetch(handle, FETCH_SECONDS)
        if result is None:
            raise RuntimeError(f"job {number} was not answered in {FETCH_SECONDS} s")
        work.check(number, result)

    def kill(self, jobs, milliseconds, after):
        """Kills a worker once `after` of the jobs have begun, and counts what becomes of all."""
        pending = dict(self.submit_all(range(jobs), milliseconds))
        self.submitted += jobs
        runs = wait("the jobs to run", lambda: at_least(after, work.recorded_runs()))
        self.kill_worker(runs)
        finished, seen, since = 0, 0, time.monotonic()
        while pending and time.monotonic() - since < self.silence_seconds:
            for number, handle in list(pending.items()):
                result = self.fetch(handle, 0.05)
                if result is not None:
                    work.check(number, result)
                    finished += 1
                    del pending[number]
            if seen != (seen := finished + len(work.recorded_runs())):
                since = time.monotonic()
        times = collections.Counter(number for number, _ in work.recorded_runs())
        twice = sum(count > 1 for count in times.values())
        return {"finished": finished, "lost": len(pending), "twice": twice}

    def records(self):
        return {"records": self.history(), "of": self.submitted}

    def measurement(self, name):
        return {"run": self.run, "kill": self.kill, "history": self.records}[name]

    def serve(self):
        try:
            answer(self.start())
            for line in sys.stdin:
                request = json.loads(line)
                answer(self.measurement(request.pop("do"))(**request))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
            raise
        finally:
            self.stop()


# Some systems talk on standard output, which is for answers only.
ANSWERS = os.fdopen(os.dup(sys.stdout.fileno()), "w")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def answer(what):
    print(json.dumps(what), file=ANSWERS, flush=True)


def wait(what, condition):
    """Waits until the condition gives something, and returns that."""
    deadline = time.monotonic() + START_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {START_SECONDS} s for {what}")
        time.sleep(POLL_SECONDS)
    return value


def at_least(count, values):
    return values if len(values) >= count else None


def version(package):
    from importlib.metadata import version

    return version(package)
