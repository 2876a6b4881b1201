"""A producer that knows RabbitMQ and tries to run jobs in a pool of others: prints a line for each way.

usage: GPUFLEET_AMQP_URL=amqp://... tenant.py OWN_CLIENT OWN_POOL OTHER_POOL JOB_ID...

Each way carries a task with the next of the job ids. A line says whether the broker took it.
"""

import json
import os
import sys
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

TASKS = "gpufleet.v1.tasks"
REPLIES = "gpufleet.v1.replies"


def task(job_id: str, client: str) -> bytes:
    buffers = [{"name": name, "dtype": "f32", "shape": [1], "data": {"inline": [1.0]}} for name in ("x", "y")]
    program = {"catalog": "saxpy"}
    body = {"version": 1, "job_id": job_id, "program": program, "arguments": {"a": 1.0}, "buffers": buffers, "reply": client}
    return json.dumps(body).encode()


class Tenant:
    """The ways, with names that the user may declare."""

    def __init__(self, channel: BlockingChannel, user: str, client: str, pools: tuple[str, str]) -> None:
        self.channel, self.user, self.client = channel, user, client
        self.own_key, self.other_key = (f"{pool}.normal" for pool in pools)
        self.queue = f"{REPLIES}.{client}"

    def publish(self, exchange: str, key: str, job_id: str, headers: dict[str, object] | None = None) -> None:
        properties = pika.BasicProperties(
            message_id=job_id, content_type="application/json", user_id=self.user, headers=headers, delivery_mode=2
        )
        self.channel.basic_publish(exchange, key, task(job_id, self.client), properties)

    def copies(self, job_id: str) -> None:
        self.publish(TASKS, self.own_key, job_id, {"CC": [self.other_key]})

    def hidden_copies(self, job_id: str) -> None:
        self.publish(TASKS, self.own_key, job_id, {"BCC": [self.other_key]})

    def bound_exchange(self, job_id: str) -> None:
        exchange = f"{self.queue}_bound"
        self.channel.exchange_declare(exchange, "fanout", durable=True)
        self.channel.exchange_bind(TASKS, exchange)
        self.publish(exchange, self.other_key, job_id)

    def alternate_exchange(self, job_id: str) -> None:
        exchange = f"{self.queue}_alternate"
        self.channel.exchange_declare(exchange, "direct", durable=True, arguments={"alternate-exchange": TASKS})
        self.publish(exchange, self.other_key, job_id)

    def dead_letters(self, job_id: str) -> None:
        queue = f"{self.queue}_expiring"
        letters = {"x-dead-letter-exchange": TASKS, "x-dead-letter-routing-key": self.other_key, "x-message-ttl": 0}
        self.channel.queue_declare(queue, durable=True, arguments=letters)
        exchange = f"{self.queue}_fanout"
        self.channel.exchange_declare(exchange, "fanout", durable=True)
        self.channel.queue_bind(queue, exchange)
        self.publish(exchange, "", job_id)


def main(client: str, own_pool: str, other_pool: str, *jobs: str) -> None:
    parameters = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    with pika.BlockingConnection(parameters) as connection:
        ways: list[Callable[[Tenant, str], None]] = [
            Tenant.copies,
            Tenant.hidden_copies,
            Tenant.bound_exchange,
            Tenant.alternate_exchange,
            Tenant.dead_letters,
        ]
        for way, job_id in zip(ways, jobs, strict=True):
            channel = connection.channel()
            channel.confirm_delivery()
            try:
                way(Tenant(channel, parameters.credentials.username, client, (own_pool, other_pool)), job_id)
                print(f"{way.__name__}: taken")
            except ChannelClosedByBroker as closed:
                print(f"{way.__name__}: {closed.reply_code}")


if __name__ == "__main__":
    main(*sys.argv[1:])
