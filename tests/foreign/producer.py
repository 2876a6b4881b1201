"""The least that a producer in any language has to do: runs the catalog kernel saxpy on a fleet, and prints y.

usage: GPUFLEET_AMQP_URL=amqp://... producer.py A X,X,... Y,Y,... [POOL]
"""

import base64
import json
import os
import secrets
import struct
import sys
import time
import uuid

import pika

TIMEOUT_SECONDS = 60
# Longer than any wait of this program. Until then the broker keeps replies for a producer whose connection broke.
QUEUE_EXPIRES_MS = 600_000


def new_id() -> str:
    """A UUID of version 7. Each job needs a new one, because a second job with the same id is the same job."""
    bits = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 7 << 76
    bits = bits & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=bits))


def task_of(a: float, x: list[float], y: list[float]) -> dict:
    """The job as the wire format describes it."""
    buffers = [
        {"name": name, "dtype": "f32", "shape": [len(data)], "data": {"inline": data}}
        for name, data in (("x", x), ("y", y))
    ]
    return {
        "version": 1,
        "job_id": new_id(),
        "program": {"catalog": "saxpy"},
        "arguments": {"a": a},
        "buffers": buffers,
    }


def run(task: dict, pool: str) -> dict:
    """Submits a task and returns its reply."""
    parameters = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    # The name must be unique, or producers take each other's replies. It begins with the user, as permissions demand.
    client = f"{parameters.credentials.username}-{secrets.token_hex(8)}"
    queue = "gpufleet.v1.replies." + client
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        # The broker confirms each message once it is on disk.
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-expires": QUEUE_EXPIRES_MS})
        channel.queue_bind(queue, "gpufleet.v1.replies", routing_key=client)
        channel.basic_publish(
            exchange="gpufleet.v1.tasks",
            routing_key=f"{pool}.normal",
            body=json.dumps(task).encode(),
            properties=pika.BasicProperties(
                content_type="application/json",
                correlation_id=task["job_id"],
                delivery_mode=2,
                message_id=task["job_id"],
                reply_to=queue,
            ),
            # Without it, the broker drops a job for a pool that has no queue.
            mandatory=True,
        )
        reply = reply_to(channel, queue, task["job_id"])
        channel.queue_delete(queue)
        return reply


def reply_to(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str, job_id: str) -> dict:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for method, properties, body in channel.consume(queue, inactivity_timeout=1):
        if method is None:
            if time.monotonic() >= deadline:
                sys.exit(f"no reply to job {job_id} within {TIMEOUT_SECONDS} s; it may still run: gpufleet show {job_id}")
            continue
        channel.basic_ack(method.delivery_tag)
        # A reply can arrive twice, and the worker knows no id of a task that it can't read.
        if properties.correlation_id == job_id:
            return json.loads(body)
    sys.exit(f"the broker ended the subscription before the reply to job {job_id}")


def output(reply: dict, name: str) -> list[float]:
    """An output of a job that succeeded, decoded from little-endian bytes."""
    found = next(output for output in reply["outputs"] if output["name"] == name)
    data = base64.b64decode(found["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def main(a: str, x: str, y: str, pool: str = "default") -> None:
    task = task_of(float(a), [float(number) for number in x.split(",")], [float(number) for number in y.split(",")])
    try:
        reply = run(task, pool)
    except pika.exceptions.UnroutableError:
        sys.exit(f"pool {pool} has no queue: no worker has ever served it")
    except pika.exceptions.NackError:
        sys.exit(f"the queue of pool {pool} is full; submit again later")
    except pika.exceptions.AMQPError as error:
        # Submitting the same task again, with the same id, is harmless.
        sys.exit(f"job {task['job_id']} may or may not have been submitted: {error!r}")
    if reply["state"] != "succeeded":
        failure = reply.get("failure") or {}
        sys.exit(f"job {task['job_id']} ended as {reply['state']}: {failure.get('code')}: {failure.get('message')}")
    print(json.dumps(output(reply, "y")))


if __name__ == "__main__":
    main(*sys.argv[1:])
