#!/bin/sh
# As root in a fresh Debian: installs the package, and runs a user's first minutes.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends -o Dpkg::Use-Pty=0 \
    /packages/gpufleet.deb rabbitmq-server postgresql python3-pip ca-certificates curl systemd dbus > /var/log/install.log 2>&1 ||
    { cat /var/log/install.log; exit 1; }
. /etc/os-release
echo "# $PRETTY_NAME, RabbitMQ $(dpkg-query -Wf '${Version}' rabbitmq-server)," \
    "Postgres $(dpkg-query -Wf '${Version}' postgresql)"
test "$(stat -c '%U %a' /etc/gpufleet/worker.env)" = "root 600"
getent passwd gpufleet-worker gpufleet-ledger gpufleet-console > /dev/null
useradd --create-home ana
su --login ana --command "PIP_CERT=/packages/certificates.crt sh /packages/first_minutes.sh"
# The compiler of CUDA C for the worker's service, which sees no homes.
cp --recursive /home/ana/.cache/gpufleet/python /opt/nvrtc
chmod --recursive a+rX /opt/nvrtc
