"""Publishes a task that expires at once, with headers that only gpufleet's own programs write.

usage: GPUFLEET_AMQP_URL=amqp://... expiring.py POOL JOB_ID NAME=VALUE...
"""

import os
import sys

import pika
from tenant import TASKS, task


def main(pool: str, job_id: str, *headers: str) -> None:
    parameters = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    user = parameters.credentials.username
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            message_id=job_id,
            content_type="application/json",
            user_id=user,
            headers=dict(header.split("=", 1) for header in headers),
            expiration="0",
            delivery_mode=2,
        )
        channel.basic_publish(TASKS, f"{pool}.normal", task(job_id, f"{user}-x"), properties, mandatory=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
