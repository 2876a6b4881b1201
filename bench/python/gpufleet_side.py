"""The Python package of gpufleet, next to the Rust client that it is made of."""

import asyncio
import gc
import os
import sys
import threading
import time

import numpy

# Of this thread alone: NumPy's import has started threads that spin for a while.
STARTED = time.thread_time()

import gpufleet as gf  # noqa: E402

IMPORT_MS = (time.thread_time() - STARTED) * 1e3

import work  # noqa: E402
from side import Side  # noqa: E402



class Gpufleet(Side):
    def start(self):
        self.fleet = gf.Fleet(os.environ["BENCH_AMQP_URL"], blobs=os.environ["BENCH_BLOBS"])
        self.saxpy = self.fleet.kernel("saxpy")
        return {"about": f"gpufleet in CPython {sys.version.split()[0]}, imported in {IMPORT_MS:.0f} ms of CPU"}

    def stop(self):
        self.fleet.close()

    def measurement(self, name):
        return getattr(self, f"measure_{name}")

    def measure_map(self, jobs):
        return self.many(jobs, lambda xs, ys: list(self.saxpy.map([2.0] * jobs, xs, ys)))

    def measure_submit(self, jobs):
        def run(xs, ys):
            futures = [self.saxpy.submit(2.0, x, y) for x, y in zip(xs, ys)]
            for _ in gf.as_completed(futures):
                pass
            return [future.result() for future in futures]

        return self.many(jobs, run)

    def measure_gather(self, jobs):
        async def run(xs, ys):
            return await asyncio.gather(*(self.saxpy.submit(2.0, x, y) for x, y in zip(xs, ys)))

        return self.many(jobs, lambda xs, ys: asyncio.run(run(xs, ys)))

    def many(self, jobs, run):
        xs, ys = zip(*(work.arrays(number) for number in range(jobs)))
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        results = run(xs, ys)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        for number, result in enumerate(results):
            work.check(number, result)
        return {"seconds": seconds, "cpu_seconds": cpu}

    def measure_call(self, jobs):
        return {"ms": [self.timed(lambda x, y: self.saxpy(2.0, x, y), number) for number in range(jobs)]}

    def timed(self, call, number):
        x, y = work.arrays(number)
        started = time.perf_counter()
        result = call(x, y)
        trip = (time.perf_counter() - started) * 1e3
        work.check(number, result)
        return trip

    def measure_await(self, jobs):
        async def run():
            trips = []
            for number in range(jobs):
                x, y = work.arrays(number)
                started = time.perf_counter()
                result = await self.saxpy.submit(2.0, x, y)
                trips.append((time.perf_counter() - started) * 1e3)
                work.check(number, result)
            return trips

        return {"ms": asyncio.run(run())}

    def measure_open(self, jobs):
        """The memory of jobs that wait, and the time to cancel them."""
        x, y = work.arrays(0)
        waiting = self.saxpy.options(pool=os.environ["BENCH_IDLE_POOL"])
        gc.collect()
        before = resident_bytes()
        with self.fleet.batch() as batch:
            for _ in range(jobs):
                waiting.submit(2.0, x, y)
            for future in batch:
                future.confirmed()
            each = (resident_bytes() - before) / jobs
            started = time.perf_counter()
            batch.cancel()
            cancelled = time.perf_counter() - started
        return {"bytes_each": each, "cancel_seconds": cancelled}

    def measure_put(self, mib):
        """The memory that storing an array takes, and its time."""
        array = numpy.random.default_rng().random(mib << 17)
        with Peak() as peak:
            started = time.perf_counter()
            stored = self.fleet.put(array)
            seconds = time.perf_counter() - started
        again = time.perf_counter()
        self.fleet.put(array)
        again = time.perf_counter() - again
        result = stored.get(self.fleet)
        result[0] += 1
        return {"seconds": seconds, "growth_bytes": peak.growth, "again_seconds": again}


class Peak:
    """By how much this process grows meanwhile."""

    def __enter__(self):
        self.before = self.most = resident_bytes()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.ended.wait(0.002):
            self.most = max(self.most, resident_bytes())

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    @property
    def growth(self):
        return self.most - self.before


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    Gpufleet().serve()
