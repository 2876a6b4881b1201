#!/bin/sh
# In a fresh Debian that is older than the package supports: unpacks the archive, and uses the command.
set -eu
. /etc/os-release
echo "# $PRETTY_NAME, $(ldd --version | head -n 1)"
mkdir /opt/gpufleet
tar --extract --gzip --file /packages/gpufleet.tar.gz --directory /opt/gpufleet --strip-components 1
export PATH="/opt/gpufleet/bin:$PATH"
gpufleet --version
gpufleet submit saxpy --arg a=2 --fill x=f32[4]:1 --fill y=f32[4]:1 --dry-run
test -s /opt/gpufleet/share/man/man1/gpufleet-submit.1
# The command needs no library and no file of the system.
mkdir /empty
cp /opt/gpufleet/bin/gpufleet /empty
chroot /empty /gpufleet submit saxpy --arg a=2 --fill x=f32[4]:1 --fill y=f32[4]:1 --dry-run
# Nothing listens on this port: the command says so and how to go on.
code=0
gpufleet submit saxpy --arg a=2 --fill x=f32[4]:1 --fill y=f32[4]:1 --amqp-url amqp://localhost:1 || code=$?
test "$code" = 7
