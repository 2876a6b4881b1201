"""A client that knows RabbitMQ and tries to read another client's replies: prints a line for each attempt.

usage: GPUFLEET_AMQP_URL=amqp://... intruder.py OWN_CLIENT OTHER_CLIENT
"""

import os
import sys

import pika

REPLIES = "gpufleet.v1.replies"
ACCESS_REFUSED = 403


def main(own: str, other: str) -> None:
    own_queue, other_queue = f"{REPLIES}.{own}", f"{REPLIES}.{other}"
    attempts = {
        "declare own queue": lambda channel: channel.queue_declare(own_queue, durable=True, arguments={"x-expires": 600_000}),
        "bind own queue to own name": lambda channel: channel.queue_bind(own_queue, REPLIES, own),
        "bind own queue to other name": lambda channel: channel.queue_bind(own_queue, REPLIES, other),
        "bind own queue to every name": lambda channel: channel.queue_bind(own_queue, REPLIES, "#"),
        "bind own queue to any name": lambda channel: channel.queue_bind(own_queue, REPLIES, "*"),
        "bind own queue to tasks": lambda channel: channel.queue_bind(own_queue, "gpufleet.v1.tasks", "#"),
        "bind own queue to events": lambda channel: channel.queue_bind(own_queue, "gpufleet.v1.events.worker", "#"),
        "get from other queue": lambda channel: channel.basic_get(other_queue),
        "consume other queue": lambda channel: channel.basic_consume(other_queue, lambda *_: None),
        "purge other queue": lambda channel: channel.queue_purge(other_queue),
        "delete other queue": lambda channel: channel.queue_delete(other_queue),
        "get unclaimed replies": lambda channel: channel.basic_get("gpufleet.v1.unclaimed"),
        "delete own queue": lambda channel: channel.queue_delete(own_queue),
    }
    with pika.BlockingConnection(pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])) as connection:
        for name, attempt in attempts.items():
            channel = connection.channel()
            try:
                attempt(channel)
                print(f"{name}: allowed")
                channel.close()
            except pika.exceptions.ChannelClosedByBroker as closed:
                print(f"{name}: {'refused' if closed.reply_code == ACCESS_REFUSED else closed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
