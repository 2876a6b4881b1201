"""Publishes a task as its user and waits for the reply, however long the job takes: prints the reply's state and attempt.

usage: GPUFLEET_AMQP_URL=amqp://... waits.py TASK_FILE
"""

import json
import os
import sys

import pika


def main(path: str) -> None:
    with open(path) as file:
        task = json.load(file)
    parameters = pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])
    user = parameters.credentials.username
    client = f"{user}-waits"
    queue = "gpufleet.v1.replies." + client
    task["reply"] = client
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-expires": 600_000})
        channel.queue_bind(queue, "gpufleet.v1.replies", routing_key=client)
        properties = pika.BasicProperties(
            message_id=task["job_id"], content_type="application/json", user_id=user, delivery_mode=2
        )
        channel.basic_publish(
            "gpufleet.v1.tasks", "default.normal", json.dumps(task).encode(), properties, mandatory=True
        )
        for method, _, body in channel.consume(queue):
            channel.basic_ack(method.delivery_tag)
            reply = json.loads(body)
            print(reply["job_id"], reply["state"], reply["attempt"])
            break
        channel.cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
