#!/bin/sh
# As root in Debian 13, with the machine's network: installs podman and Docker Compose, makes images that stand in for those of
# compose.yaml, and builds the fleet's own. The base images come from registries that a test machine may not reach.
#
# RUST is the folder of a Rust toolchain, RUST_VERSION the one that the Dockerfile names. The source is in /src.
set -eu
export DEBIAN_FRONTEND=noninteractive BUILDAH_ISOLATION=chroot PODMAN_IGNORE_CGROUPSV1_WARNING=1
# One build after the other: the images share the stage that compiles the workspace.
export DOCKER_HOST=unix:///run/podman.sock DOCKER_BUILDKIT=0 COMPOSE_PARALLEL_LIMIT=1

base=/packages/base.tar
tar --create --one-file-system --file "$base" --directory / --exclude .$base --exclude ./src .
apt-get -qq update
apt-get -qq install --yes --no-install-recommends podman crun catatonit netavark aardvark-dns nftables iproute2 \
    docker-compose systemd systemd-sysv dbus curl jq > /dev/null
# A test machine may have mixed hierarchies of cgroups, without a controller of processes, and low limits itself.
mkdir -p /etc/containers
cat > /etc/containers/containers.conf << 'END'
[containers]
pids_limit = 0
default_ulimits = ["nofile=1024:1024", "nproc=2000:2000"]
END
podman import --quiet "$base" docker.io/library/debian:bookworm-slim > /dev/null
rm "$base"

# Builds a stand-in: its name, the end of its Containerfile's name, and its context.
stand_in() {
    echo "── $1"
    podman build --quiet --layers --pull=never --file "/src/tests/compose/Containerfile.$2" --tag "docker.io/library/$1" "$3" > /dev/null
}
stand_in rabbitmq:4 rabbitmq /src/tests/compose
stand_in postgres:17 postgres /src/tests/compose
stand_in python:3.12-slim-bookworm python /src/tests/compose
stand_in "rust:$RUST_VERSION-bookworm" rust "$RUST"

podman system service --time 0 "$DOCKER_HOST" &
trap 'kill $!' EXIT
timeout 30 sh -c 'until test -S /run/podman.sock; do sleep 0.1; done'
cd /src
sed '/^[^#]/s/$/ofThisTestAlone0/' deploy/example.env > .env
echo "── build the fleet's images"
docker-compose --profile emulated build
podman images
