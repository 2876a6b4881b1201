#!/bin/sh
# As root: removes the package with its settings.
set -eu
apt-get -qq purge --yes -o Dpkg::Use-Pty=0 gpufleet > /dev/null
test ! -e /etc/gpufleet/worker.env
test ! -e /usr/bin/gpufleet
