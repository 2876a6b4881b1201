#!/bin/sh
# Runs the kernel on the fleet, and writes its result to y.npy.
set -eu
cd "$(dirname "$0")"
gpufleet submit --source KERNEL.cu --entry KERNEL --cover 1024 \
    --fill 'x=f32[1024]:4' --fill 'y=f32[1024]:8' --out y=y.npy \
    --args x,y,share:f32=0.25,n:u32=1024
