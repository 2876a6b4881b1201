"""Publishes cancellations that are larger than gpufleet allows: a line with the bytes of each.

usage: GPUFLEET_AMQP_URL=amqp://... floods.py COUNT IDS
"""

import json
import os
import sys
import uuid

import pika

ORDERS = "gpufleet.v1.control.client"


def main(count: int, ids: int) -> None:
    parameters = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(user_id=parameters.credentials.username)
        jobs = [str(uuid.uuid4()) for _ in range(ids)]
        order = json.dumps({"version": 1, "at_ms": 1, "command": {"cancel": {"jobs": jobs}}}).encode()
        for _ in range(count):
            channel.basic_publish(ORDERS, "", order, properties, mandatory=True)
            print(len(order))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
