"""The fleet through aio-pika alone: one JSON task in each message, published with confirms from a loop of coroutines."""

import asyncio
import json
import os
import time

import aio_pika

import work
from json_task import REPLY_QUEUE_ARGUMENTS, output, task
from side import Side, version

CLIENT = "bench-aio-pika"
QUEUE = "gpufleet.v1.replies." + CLIENT
# Confirms are never waited for one by one.
UNCONFIRMED_MAX = 256
PREFETCH = 1000


class AioPika(Side):
    def start(self):
        self.runner = asyncio.Runner()
        self.runner.run(self.connect())
        return {"about": f"aio-pika {version('aio-pika')}, one JSON task per message, {UNCONFIRMED_MAX} unconfirmed"}

    async def connect(self):
        self.connection = await aio_pika.connect(os.environ["BENCH_AMQP_URL"])
        self.channel = await self.connection.channel(publisher_confirms=True)
        await self.channel.set_qos(prefetch_count=PREFETCH)
        self.tasks = await self.channel.get_exchange("gpufleet.v1.tasks")
        self.replies = await self.channel.declare_queue(QUEUE, durable=True, arguments=REPLY_QUEUE_ARGUMENTS)
        await self.replies.bind("gpufleet.v1.replies", routing_key=CLIENT)

    def measurement(self, name):
        return {"submit": self.measure_submit}[name]

    def measure_submit(self, jobs):
        cpu, started = time.process_time(), time.perf_counter()
        results = self.runner.run(self.answers(jobs))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        for number, result in results.items():
            work.check(number, result)
        return {"seconds": seconds, "cpu_seconds": cpu}

    async def answers(self, jobs):
        results, done = {}, asyncio.get_running_loop().create_future()

        async def replied(message):
            await message.ack()
            try:
                results[int(message.correlation_id)] = output(json.loads(message.body))
            except Exception as error:
                done.set_exception(error)
            if len(results) == jobs:
                done.set_result(None)

        consumer = await self.replies.consume(replied)
        room = asyncio.Semaphore(UNCONFIRMED_MAX)
        async with asyncio.TaskGroup() as group:
            for number in range(jobs):
                await room.acquire()
                group.create_task(self.publish(number)).add_done_callback(lambda _: room.release())
        await done
        await self.replies.cancel(consumer)
        return results

    async def publish(self, number):
        properties = {"content_type": "application/json", "correlation_id": str(number), "reply_to": QUEUE}
        message = aio_pika.Message(task(number), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **properties)
        await self.tasks.publish(message, "default.normal", mandatory=True)

    def stop(self):
        self.runner.run(self.connection.close())
        self.runner.close()


if __name__ == "__main__":
    AioPika().serve()
