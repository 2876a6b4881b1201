"""Trains a small network with tinygrad on its CUDA device: first step by step, then as CUDA graphs that its JIT records."""

import sys

from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.helpers import Context
from tinygrad.runtime.graph.cuda import CUDAGraph

STEPS = 80
LOSS_MAX = 0.02


class Network:
    """Two layers that can learn the exclusive or."""

    def __init__(self):
        self.hidden, self.output = nn.Linear(2, 16), nn.Linear(16, 1)

    def __call__(self, inputs):
        return self.output(self.hidden(inputs).tanh())


def main():
    launches = count_graph_launches()
    Tensor.manual_seed(1)
    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=0.05)
    inputs = Tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).realize()
    targets = Tensor([[0.0], [1.0], [1.0], [0.0]]).realize()

    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = ((network(inputs) - targets) ** 2).mean().backward()
        optimizer.step()
        return loss.realize()

    with Context(TRAINING=1):
        losses = [step().item() for _ in range(STEPS)]
    outputs = network(inputs).numpy().ravel()
    print(f"{Device.DEFAULT}: loss {losses[0]:.3f} at first, {losses[-1]:.5f} after {STEPS} steps")
    print(f"outputs {[round(float(value), 2) for value in outputs]}, {len(launches)} graph launches")
    learned = losses[-1] < LOSS_MAX and [round(float(value)) for value in outputs] == [0, 1, 1, 0]
    if Device.DEFAULT != "CUDA" or not launches or not learned:
        sys.exit("error: the network did not learn on the CUDA device with graphs")


def count_graph_launches():
    """A list that gets an entry for each launch."""
    launches = []
    call = CUDAGraph.__call__

    def counted(self, *arguments, **options):
        launches.append(self)
        return call(self, *arguments, **options)

    CUDAGraph.__call__ = counted
    return launches


main()
