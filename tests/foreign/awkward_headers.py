"""A producer whose messages are as awkward as RabbitMQ lets them be.

usage: GPUFLEET_AMQP_URL=amqp://... awkward_headers.py EXCHANGE ROUTING_KEY SHAPE BODY_FILE MESSAGE_ID REPLY_TO [NAME=TEXT...]

SHAPE is tables, arrays or mixed: the headers nest as deep as one frame holds; or texts: what should be UTF-8 is not. The NAME=TEXT are
headers beside that.
"""

import itertools
import os
import struct
import sys

import pika
import pika.data

FRAME_BYTES_MAX = 131_072
# The frame's head and end, the content header's numbers and flags, the other properties and header.
OTHER_BYTES = 1024
SHAPES = {"tables": "F", "arrays": "A", "mixed": "FA"}


def nested(shape: str) -> bytes:
    """A value of containers in one another. Encoding it by recursion would overflow Python's stack as well."""
    pieces = []
    inside = 0
    for kind in itertools.cycle(shape):
        named = kind == "F" and inside > 0
        if named:
            # The inner container has an empty name.
            pieces.append(b"\0")
        pieces.append(kind.encode() + struct.pack(">I", inside + named))
        inside += named + 5
        if inside > FRAME_BYTES_MAX - OTHER_BYTES:
            return b"".join(reversed(pieces))


def field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def text(value: str) -> bytes:
    return b"S" + struct.pack(">I", len(value)) + value.encode()


def table(shape: str, texts: list[str]) -> bytes:
    awkward = field(b"caf\xe9", b"V") if shape == "texts" else field(b"deep", nested(SHAPES[shape]))
    plain = (entry.split("=", 1) for entry in texts)
    return awkward + b"".join(field(name.encode(), text(value)) for name, value in plain)


def encode_table(pieces: list[bytes], encoded: bytes | dict) -> int:
    if not isinstance(encoded, bytes):
        return encode_plainly(pieces, encoded)
    pieces.append(struct.pack(">I", len(encoded)) + encoded)
    return 4 + len(encoded)


encode_plainly, pika.data.encode_table = pika.data.encode_table, encode_table


def main(exchange, routing_key, shape, body, message_id, reply_to, *texts) -> None:
    with pika.BlockingConnection(pika.URLParameters(os.environ["GPUFLEET_AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="application/json",
            correlation_id=b"caf\xe9" if shape == "texts" else "plain",
            delivery_mode=2,
            message_id=message_id,
            reply_to=reply_to or None,
        )
        properties.headers = table(shape, list(texts))
        with open(body, "rb") as file:
            channel.basic_publish(exchange, os.fsencode(routing_key), file.read(), properties, mandatory=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
