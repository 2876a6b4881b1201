#!/bin/sh
# As root in a fresh Debian: installs RabbitMQ and Postgres, and runs the scenarios, which were built elsewhere.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends -o Dpkg::Use-Pty=0 \
    rabbitmq-server postgresql python3 ca-certificates procps > /var/log/install.log 2>&1 ||
    { cat /var/log/install.log; exit 1; }
. /etc/os-release
echo "# $PRETTY_NAME, RabbitMQ $(dpkg-query -Wf '${Version}' rabbitmq-server)," \
    "Postgres $(dpkg-query -Wf '${Version}' postgresql)"
cd "$CARGO_MANIFEST_DIR"
# The command and its arguments.
exec $SCENARIOS
