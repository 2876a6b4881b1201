"""Ray on one node with two CPUs."""

import os
import signal
import time

import ray

import work
from side import Side, version

CPUS = 2
#: The last report of a killed worker never comes.
REPORTED_SECONDS = 10
POLL_SECONDS = 0.5


class Ray(Side):
    def start(self):
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=os.path.join(self.folder, "ray"),
        )
        self.saxpy = ray.remote(work.saxpy)
        return {"about": f"Ray {version('ray')}, one node, {CPUS} CPUs, no dashboard"}

    def submit(self, number, milliseconds):
        return self.saxpy.remote(number, *work.arrays(number), milliseconds)

    def fetch(self, handle, seconds):
        try:
            return ray.get(handle, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            return None

    def kill_worker(self, runs):
        os.kill(runs[-1][1], signal.SIGKILL)

    def history(self):
        """Tasks in the timeline, which the head node keeps in memory. Workers report about once a second."""
        deadline = time.monotonic() + REPORTED_SECONDS
        while (records := recorded()) < self.submitted and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return records

    def stop(self):
        ray.shutdown()


def recorded():
    return len({event["args"]["task_id"] for event in ray.timeline() if event["cat"] == "task::saxpy"})


if __name__ == "__main__":
    Ray().serve()
