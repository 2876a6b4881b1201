"""Publishes a file as a task, whatever it contains, and prints the reply undecoded.

usage: GPUFLEET_AMQP_URL=amqp://... publish_file.py TASK_FILE CONTENT_TYPE [MESSAGE_ID]
"""

import os
import sys

import pika

TIMEOUT_SECONDS = 60


def main(path: str, content_type: str, message_id: str | None = None) -> None:
    url = os.environ["GPUFLEET_AMQP_URL"]
    client = "pika-producer"
    queue = "gpufleet.v1.replies." + client
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-expires": 600_000})
        channel.queue_bind(queue, "gpufleet.v1.replies", routing_key=client)
        with open(path, "rb") as task:
            channel.basic_publish(
                exchange="gpufleet.v1.tasks",
                routing_key="default.normal",
                body=task.read(),
                properties=pika.BasicProperties(
                    content_type=content_type,
                    correlation_id=path,
                    delivery_mode=2,
                    message_id=message_id,
                    reply_to=queue,
                ),
                mandatory=True,
            )
        for method, properties, body in channel.consume(queue, inactivity_timeout=TIMEOUT_SECONDS):
            if method is None:
                sys.exit(f"no reply within {TIMEOUT_SECONDS} s")
            if properties.correlation_id != path:
                sys.exit(f"a reply to {properties.correlation_id} came instead")
            channel.basic_ack(method.delivery_tag)
            print(properties.content_type, body.hex())
            break
        channel.cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
