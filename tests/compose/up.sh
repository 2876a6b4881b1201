#!/bin/sh
# As root in the booted Debian 13 of build.sh: starts the fleet of compose.yaml, and does with it what the documentation says. The
# images are built already, so nothing here needs a network.
set -eu
export DOCKER_HOST=unix:///run/podman/podman.sock DOCKER_BUILDKIT=0
# A program that can't start would be waited for without end, so the unit of this script has a limit.
compose() {
    docker-compose --file compose.yaml --file tests/compose/limits.yaml --profile emulated "$@"
}
trap 'test $? = 0 || { compose ps --all; compose logs --tail 5; }' EXIT
trap 'exit 1' TERM

# Repeats a command until it succeeds.
until_true() {
    until "$@" > /dev/null 2>&1; do sleep 0.2; done
}

# Whether exactly this many workers are there.
has_workers() {
    test "$(gpufleet workers -o json | jq '[.[] | select(.state == "up")] | length')" = "$1"
}

# Whether some job ran again.
has_rerun() {
    test "$(gpufleet history -o json | jq '[.[] | select(.attempts > 1)] | length')" -gt 0
}

submit() {
    gpufleet submit --source /packages/add.cu --entry add --cover 4 --block 32 --fill x=f32[4]:1 --fill y=f32[4]:2 \
        --args "x,y,n=4,times=$times" "$@"
}

ip link set lo up
systemctl start podman.socket
cd /src
compose up --build --wait
compose ps

echo "── the commands of the documentation"
. ./.env
export GPUFLEET_AMQP_URL="amqp://gpufleet:$GPUFLEET_BROKER_PASSWORD@127.0.0.1:5672/gpufleet"
export GPUFLEET_DATABASE_URL="postgres://gpufleet_reader:$GPUFLEET_READER_PASSWORD@127.0.0.1:5432/gpufleet"
podman cp gpufleet-ledger-1:/usr/local/bin/gpufleet /usr/local/bin/
cat > /packages/add.cu << 'CUDA'
extern "C" __global__ void add(volatile float *x, const float *y, unsigned n, unsigned times) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned time = 0; i < n && time < times; time++) x[i] += y[i];
}
CUDA
gpufleet workers
times=1
submit --out x=/packages/x.npy
# The elements follow a header of 128 bytes.
test "$(od -A n -t f4 -j 128 /packages/x.npy | tr -s ' ')" = " 3 3 3 3"
gpufleet history
curl --fail --silent --output /dev/null http://127.0.0.1:9480/

echo "── two workers"
compose up --wait --scale worker-emulated=2
until_true has_workers 2
gpufleet workers

echo "── one of them is killed while it has jobs"
times=20000000
for job in $(seq 20); do
    submit --detach
done > /packages/jobs
podman kill --signal KILL gpufleet-worker-emulated-1
gpufleet wait --timeout 200s $(cat /packages/jobs)
until_true has_rerun
gpufleet stats

echo "── down"
compose down --volumes
test -z "$(podman ps --all --quiet)"
test -z "$(podman volume ls --quiet)"
