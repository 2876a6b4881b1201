#!/bin/sh
# As root: builds the images of deploy/Dockerfile with buildah, and runs a job in the worker's. The base images come from
# registries that a test machine may not reach, so Debian and this machine's Rust stand in for them.
#
# SYSTEM is a Debian system in a folder, RUST the folder of a Rust toolchain, RUST_VERSION the one that the Dockerfile names, STORE an empty
# folder for everything made here, and GPUFLEET_BIN_DIR has the programs of the local fleet.
set -eu
export TMPDIR="$STORE" GPUFLEET_LOCAL_DIR="$STORE/local" PATH="$GPUFLEET_BIN_DIR:$PATH"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

images() { buildah --root "$STORE/root" --runroot "$STORE/run" --storage-driver vfs "$@"; }

# Runs a command in a container.
in_container() {
    container=$1
    shift
    images run --isolation chroot "$container" -- "$@"
}

# Makes a container the image of this name.
commit() {
    images commit --quiet --rm "$1" "$2" > /dev/null
}

running=
stop() {
    test -z "$running" || kill "$running" 2> /dev/null || true
    gpufleet local down > /dev/null 2>&1 || true
    images rm --all > /dev/null 2>&1 || true
}
trap stop EXIT

debian=$(images from scratch)
images copy --quiet "$debian" "$SYSTEM" / > /dev/null
commit "$debian" docker.io/library/debian:bookworm-slim

rust=$(images from --pull-never debian:bookworm-slim)
in_container "$rust" sh -c 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends gcc libc6-dev' > /dev/null
images copy --quiet "$rust" "$RUST" /usr/local/rust > /dev/null
images config --env PATH=/usr/local/rust/bin:/usr/bin:/bin --env CARGO_HOME=/usr/local/cargo \
    --env CARGO_HTTP_CAINFO=/packages/certificates.crt "$rust"
# What is tested is the Dockerfile, so its programs need no optimisation here.
images config --env CARGO_PROFILE_DIST_LTO=off --env CARGO_PROFILE_DIST_OPT_LEVEL=0 "$rust"
commit "$rust" "docker.io/library/rust:$RUST_VERSION-bookworm"

python=$(images from --pull-never debian:bookworm-slim)
in_container "$python" sh -c 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends python3-pip' > /dev/null
images config --env PIP_CERT=/packages/certificates.crt "$python"
commit "$python" docker.io/library/python:3.12-slim-bookworm

for image in worker ledger console; do
    echo "── build $image"
    images build --quiet --isolation chroot --pull-never --layers --file deploy/Dockerfile --target "$image" \
        --tag "gpufleet-$image:$version" . > /dev/null
done
echo "── sizes"
images images --format '{{.Name}}:{{.Tag}} {{.Size}}' | grep gpufleet-

echo "── programs"
ledger=$(images from --pull-never "gpufleet-ledger:$version")
for program in gpufleet gpufleet-ledger; do
    in_container "$ledger" "$program" --version
done
console=$(images from --pull-never "gpufleet-console:$version")
in_container "$console" gpufleet-console --version

echo "── a worker in its image"
gpufleet local up --cuda emulated
eval "$(gpufleet local env)"
worker=$(images from --pull-never "gpufleet-worker:$version")
images config --env "GPUFLEET_AMQP_URL=$GPUFLEET_AMQP_URL" --env GPUFLEET_POOL=image \
    --env GPUFLEET_WORKER_NAME=image "$worker"
in_container "$worker" gpufleet-worker run --cuda emulated --ready-file /run/gpufleet/ready &
running=$!
timeout 60 sh -c 'until test -e "$1/run/gpufleet/ready"; do sleep 0.1; done' sh "$(images mount "$worker")"
cat > "$STORE/add.cu" << 'CUDA'
extern "C" __global__ void add(float *x, const float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
CUDA
gpufleet submit --pool image --source "$STORE/add.cu" --entry add --cover 4 --block 32 \
    --fill x=f32[4]:1 --fill y=f32[4]:2 --args x,y,n:u32=4 --out x="$STORE/x.npy"
gpufleet workers drain image
wait "$running"
