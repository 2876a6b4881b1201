"""The job as a task in JSON, and its reply, for producers that have an AMQP client alone."""

import base64
import json
import secrets
import time
import uuid

import numpy

import work

#: Until then the broker keeps replies for a producer that is away.
REPLY_QUEUE_ARGUMENTS = {"x-expires": 600_000}


def task(number):
    return json.dumps({
        "version": 1,
        "job_id": job_id(),
        "program": {"catalog": "saxpy"},
        "arguments": {"a": 2.0},
        "buffers": [
            {"name": name, "dtype": "f32", "shape": [len(array)], "data": {"inline": encoded(array)}}
            for name, array in zip("xy", work.arrays(number))
        ],
    }).encode()


def job_id():
    """A UUID of version 7, in which the ledger finds the time."""
    milliseconds = int(time.time() * 1000)
    bits = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=bits))


def encoded(array):
    return base64.b64encode(array.astype("<f4").tobytes()).decode()


def output(reply):
    if reply["state"] != "succeeded":
        raise RuntimeError(f"a job {reply['state']}: {reply.get('failure')}")
    [y] = reply["outputs"]
    return numpy.frombuffer(base64.b64decode(y["data"]), dtype="<f4")
