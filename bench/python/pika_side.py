"""The fleet through pika alone: one JSON task in each message, published with confirms.

pika's `BlockingConnection` would wait for each confirm before the next publish, so this uses its asynchronous connection, as a
producer with many jobs in flight does.
"""

import json
import os
import time

import pika

import work
from json_task import REPLY_QUEUE_ARGUMENTS, output, task
from side import Side, version

CLIENT = "bench-pika"
QUEUE = "gpufleet.v1.replies." + CLIENT
PREFETCH = int(os.environ.get("BENCH_IN_FLIGHT_MAX", "1000"))


class Pika(Side):
    def start(self):
        url = pika.URLParameters(os.environ["BENCH_AMQP_URL"])
        self.connection = pika.SelectConnection(
            url, on_open_callback=self.opened, on_open_error_callback=self.failed, on_close_callback=self.failed
        )
        self.error = None
        self.connection.ioloop.start()
        self.check()
        return {"about": f"pika {version('pika')}, one JSON task per message, asynchronous confirms"}

    def opened(self, connection):
        connection.channel(on_open_callback=self.declare)

    def declare(self, channel):
        self.channel = channel
        channel.confirm_delivery(self.confirmed)
        channel.add_on_return_callback(self.returned)
        channel.add_on_close_callback(self.failed)
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.queue_declare(QUEUE, durable=True, arguments=REPLY_QUEUE_ARGUMENTS, callback=self.bind)

    def bind(self, _declared):
        self.channel.queue_bind(QUEUE, "gpufleet.v1.replies", routing_key=CLIENT, callback=self.consume)

    def consume(self, _bound):
        self.channel.basic_consume(QUEUE, self.replied, callback=lambda _consuming: self.pause())

    def run(self, jobs, in_flight):
        self.jobs, self.next, self.begun, self.trips = jobs, 0, {}, []
        started = time.perf_counter()
        for _ in range(min(jobs, in_flight)):
            self.publish_next()
        self.connection.ioloop.start()
        self.check()
        self.submitted += jobs
        return {"seconds": time.perf_counter() - started, "round_trips_ms": self.trips}

    def publish_next(self):
        number, self.next = self.next, self.next + 1
        self.begun[number] = time.perf_counter()
        self.channel.basic_publish(
            exchange="gpufleet.v1.tasks",
            routing_key="default.normal",
            body=task(number),
            properties=pika.BasicProperties(
                content_type="application/json", correlation_id=str(number), delivery_mode=2, reply_to=QUEUE
            ),
            mandatory=True,
        )

    def replied(self, channel, method, properties, body):
        channel.basic_ack(method.delivery_tag)
        number = int(properties.correlation_id)
        try:
            work.check(number, output(json.loads(body)))
        except Exception as error:
            return self.failed(channel, error)
        self.trips.append((time.perf_counter() - self.begun.pop(number)) * 1000)
        if self.next < self.jobs:
            self.publish_next()
        elif not self.begun:
            self.pause()

    def confirmed(self, frame):
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self.failed(self.channel, RuntimeError("the broker refused a job"))

    def returned(self, channel, method, _properties, _body):
        self.failed(channel, RuntimeError(f"the broker returned a job: {method.reply_text}"))

    def failed(self, _where, error):
        self.error = self.error or error
        self.pause()

    def pause(self):
        self.connection.ioloop.stop()

    def check(self):
        if self.error:
            raise self.error

    def stop(self):
        if self.connection.is_open:
            self.error = None
            self.connection.close()
            # Ends when the connection has closed.
            self.connection.ioloop.start()


if __name__ == "__main__":
    Pika().serve()
