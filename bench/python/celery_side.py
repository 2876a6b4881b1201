"""Celery with RabbitMQ: prefork workers, results over RPC."""

import os
import signal
import sys

from celery.exceptions import TimeoutError
from celery.result import AsyncResult

import celery_tasks
import work
from side import Side, at_least, version, wait

WORKERS = int(os.environ.get("BENCH_CELERY_WORKERS", "2"))
#: In each worker's pool.
PROCESSES = int(os.environ.get("BENCH_CELERY_PROCESSES", "1"))


class Celery(Side):
    def __init__(self):
        super().__init__()
        self.ids = []

    def start(self):
        for number in range(WORKERS):
            self.spawn(
                sys.executable, "-m", "celery", "-A", "celery_tasks", "worker",
                "--hostname", f"w{number}@localhost", "--concurrency", str(PROCESSES), "--loglevel", "WARNING",
            )
        inspect = celery_tasks.app.control
        wait("the workers", lambda: at_least(WORKERS, inspect.ping(timeout=1)))
        late = ", acks_late" if celery_tasks.app.conf.task_acks_late else ""
        pools = f"{WORKERS} × {PROCESSES} prefork"
        return {"about": f"Celery {version('celery')}, {pools}, RPC results{late}"}

    def submit(self, number, milliseconds):
        x, y = (array.tobytes() for array in work.arrays(number))
        result = celery_tasks.saxpy.delay(number, x, y, milliseconds)
        self.ids.append(result.id)
        return result

    def fetch(self, handle, seconds):
        try:
            return celery_tasks.array(handle.get(timeout=seconds))
        except TimeoutError:
            return None

    def kill_worker(self, runs):
        # The parent and its pool process are one group, and both go.
        pid = runs[-1][1]
        os.killpg(os.getpgid(pid), signal.SIGKILL)

    def history(self):
        """Tasks whose state can still be looked up by their ids."""
        return sum(AsyncResult(id, app=celery_tasks.app).state != "PENDING" for id in self.ids)


if __name__ == "__main__":
    Celery().serve()
