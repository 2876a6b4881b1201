"""A program that materializes an asset whose job runs until it is cancelled: `interrupted.py RUN FORWARD`."""

import sys

import dagster as dg

from gpufleet.dagster import GpufleetResource

LABELS = {"run": sys.argv[1]}


@dg.asset
def endless(gpufleet: GpufleetResource) -> float:
    with gpufleet.connect() as fleet:
        future = fleet.kernel("monte_carlo_pi").options(labels=LABELS).submit(10**15)
        print(future.job_id, flush=True)
        return float(future.result()[0])


if __name__ == "__main__":
    resource = GpufleetResource(forward_termination=sys.argv[2] == "True")
    dg.materialize([endless], resources={"gpufleet": resource})
