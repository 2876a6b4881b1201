"""The Celery application. Everything that is not set here has Celery's default."""

import os

import numpy
from celery import Celery

import work

app = Celery("comparison", broker=os.environ["BENCH_AMQP_URL"], backend="rpc://")
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = os.environ.get("BENCH_ACKS_LATE") == "1"


@app.task(name="saxpy")
def saxpy(number, x, y, milliseconds):
    """Arrays travel as bytes, which Celery's JSON writes in base64: lists of numbers would be slower and larger."""
    return work.saxpy(number, array(x), array(y), milliseconds).tobytes()


def array(data):
    return numpy.frombuffer(data, dtype=numpy.float32)
