"""A producer whose tasks arrive damaged: publishes them, and fails unless each gets exactly one reply under its correlation id.

usage: GPUFLEET_AMQP_URL=amqp://... damaged.py COUNT SEED JSON_TASK MESSAGEPACK_TASK
"""

import json
import os
import random
import sys
import uuid

import messagepack
import pika

GOLDEN_ID = uuid.UUID("0190a5b8-7c00-7000-8000-000000000001")
CLIENT = "pika-damaged"
QUEUE = "gpufleet.v1.replies." + CLIENT
JSON, PACKED = "application/json", "application/msgpack"
DECODERS = {JSON: json.loads, PACKED: messagepack.decode}
# Between two replies. The worker handles hundreds a second.
TIMEOUT_SECONDS = 60


def damaged(chance: random.Random, body: bytes, content_type: str) -> tuple[str, bytes, str | None]:
    """What was done to a task, its body and its content type."""
    kind = chance.choice(["cut", "flip", "noise", "insert", "content type", "list"])
    if kind == "cut":
        return kind, body[: chance.randrange(len(body))], content_type
    if kind == "noise":
        return kind, chance.randbytes(chance.randrange(1, 200)), content_type
    if kind == "content type":
        other = JSON if content_type == PACKED else PACKED
        return kind, body, chance.choice([None, "", "image/png", "application/msgpack2", other])
    changed = bytearray(body)
    if kind == "flip":
        for _ in range(chance.randrange(1, 9)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    elif kind == "insert":
        at = chance.randrange(len(changed))
        changed[at:at] = chance.randbytes(chance.randrange(1, 20))
    else:
        # A list whose only item is cut, or that has none.
        part = changed[: chance.randrange(len(changed))] if chance.random() < 0.8 else b""
        changed = b"[" + part + b"]" if content_type == JSON else bytes([0x91 if part else 0x90]) + part
    return kind, bytes(changed), content_type


def tasks(count: int, seed: int, files: list[str]):
    chance = random.Random(seed)
    golden = []
    for path in files:
        with open(path, "rb") as task:
            golden.append(task.read())
    for number in range(count):
        which = number % 2
        job_id = uuid.UUID(int=chance.getrandbits(128), version=4)
        body = golden[which].replace(str(GOLDEN_ID).encode(), str(job_id).encode())
        _, body, content_type = damaged(chance, body, [JSON, PACKED][which])
        # Some producers give a message its job's id, some one of its own, and some none.
        own = uuid.UUID(int=chance.getrandbits(128), version=4)
        message_id = chance.choice([None, str(job_id), str(own)])
        # A correlation id may be as long as AMQP lets it be.
        correlation_id = f"{number:05}".ljust(chance.choice([5, 36, 255]), "x")
        yield correlation_id, job_id, body, pika.BasicProperties(
            content_type=content_type,
            correlation_id=correlation_id,
            message_id=message_id,
            reply_to=chance.choice([QUEUE, CLIENT]),
        )


def answers(properties, body: bytes) -> list:
    decoded = DECODERS[properties.content_type](body)
    return decoded if isinstance(decoded, list) else [decoded]


def check(reply: dict, job_id: uuid.UUID, body: bytes) -> str | None:
    """Fails unless a reply is whole; returns its job's id."""
    if reply["version"] != 1 or "state" not in reply:
        sys.exit(f"this is no reply: {reply}")
    if reply["state"] != "succeeded" and not reply["failure"]["message"]:
        sys.exit(f"a reply without a reason: {reply}")
    told = reply["job_id"]
    if told is None or told == str(job_id):
        return told
    # The damage met the id: the worker can only repeat what it read.
    if uuid.UUID(told).hex not in body.replace(b"-", b"").decode("latin-1").lower():
        sys.exit(f"the reply is of job {told}, the task was {job_id}")
    return told


def main(count: str, seed: str, *files: str) -> None:
    url = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    with pika.BlockingConnection(url) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-expires": 600_000})
        channel.queue_bind(QUEUE, "gpufleet.v1.replies", routing_key=CLIENT)
        sent = {}
        for correlation_id, job_id, body, properties in tasks(int(count), int(seed), list(files)):
            sent[correlation_id] = (job_id, body)
            channel.basic_publish("gpufleet.v1.tasks", "default.normal", body, properties, mandatory=True)
        tally = {"answered": 0, "without_id": 0, "with_id": 0, "empty": 0}
        open_ids = set(sent)
        for method, properties, body in channel.consume(QUEUE, inactivity_timeout=TIMEOUT_SECONDS):
            if method is None:
                sys.exit(f"{len(open_ids)} of {count} have no reply, such as {sent[min(open_ids)][1]!r}")
            if properties.correlation_id not in open_ids:
                sys.exit(f"a second reply to {properties.correlation_id}, or one to nobody")
            open_ids.remove(properties.correlation_id)
            tally["answered"] += 1
            replies = answers(properties, body)
            tally["empty"] += not replies
            for reply in replies:
                known = check(reply, *sent[properties.correlation_id])
                tally["with_id" if known else "without_id"] += 1
            channel.basic_ack(method.delivery_tag)
            if not open_ids:
                break
        channel.cancel()
        # What comes now would be a second reply.
        if channel.basic_get(QUEUE)[0] is not None:
            sys.exit("there are more replies than tasks")
        print(json.dumps(tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
