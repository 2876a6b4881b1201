#!/bin/sh
# As root in a booted Debian with the package: configures and starts its services, runs jobs, and stops the services.
set -eu
services="gpufleet-recorder gpufleet-api gpufleet-console gpufleet-worker"
trap 'test $? = 0 || journalctl --no-pager --lines 200' EXIT

# Repeats a command until it succeeds. The unit of this script has a limit.
until_true() {
    until "$@" > /dev/null 2>&1; do sleep 0.2; done
}

is_restarted() {
    test "$(systemctl show --property NRestarts --value gpufleet-worker)" = 1 && systemctl is-active --quiet gpufleet-worker
}

has_recorded() {
    gpufleet history -o json | grep -q '"state": *"succeeded"'
}

until_true rabbitmqctl await_startup
rabbitmqctl --quiet add_vhost gpufleet
rabbitmqctl --quiet add_user fleet of-broker
rabbitmqctl --quiet set_permissions --vhost gpufleet fleet '.*' '.*' '.*'
until_true runuser --user postgres -- psql --command 'select 1'
runuser --user postgres -- psql --quiet --command "create role fleet login password 'of-database'"
runuser --user postgres -- createdb --owner fleet gpufleet
runuser --user postgres -- psql --quiet --dbname gpufleet --command "create role reader login password 'of-reader'" \
    --command 'alter default privileges for role fleet in schema public grant select on tables to reader'
export GPUFLEET_AMQP_URL=amqp://fleet:of-broker@127.0.0.1:5672/gpufleet
export GPUFLEET_DATABASE_URL=postgres://fleet:of-database@127.0.0.1:5432/gpufleet

cat > /etc/gpufleet/worker.env << END
GPUFLEET_AMQP_URL=$GPUFLEET_AMQP_URL
GPUFLEET_CUDA=emulated
GPUFLEET_NVRTC=$(find /opt/nvrtc -name 'libnvrtc.so.*')
END
cat > /etc/gpufleet/ledger.env << END
GPUFLEET_AMQP_URL=$GPUFLEET_AMQP_URL
GPUFLEET_DATABASE_URL=$GPUFLEET_DATABASE_URL
END
cat > /etc/gpufleet/api.env << END
GPUFLEET_DATABASE_URL=postgres://reader:of-reader@127.0.0.1:5432/gpufleet
GPUFLEET_API_TOKEN=0123456789abcdef
END
cat > /etc/gpufleet/console.env << END
GPUFLEET_API_URL=http://127.0.0.1:9470
GPUFLEET_API_TOKEN=0123456789abcdef
GPUFLEET_AMQP_URL=$GPUFLEET_AMQP_URL
END
gpufleet-ledger migrate
# shellcheck disable=SC2086
systemctl enable --quiet --now $services

echo "# privileges, from 0 (few) to 10 (many)"
for service in $services; do
    systemd-analyze security --no-pager "$service" | grep 'Overall exposure'
done

# The read API serves callers from the network, and has none of the recorder's passwords.
if tr '\0' '\n' < "/proc/$(systemctl show --property MainPID --value gpufleet-api)/environ" | grep -e of-broker -e of-database; then
    exit 1
fi

cd /root
gpufleet init blend
sh blend/run.sh
until_true has_recorded
until_true curl --silent --fail --header 'Authorization: Bearer 0123456789abcdef' http://127.0.0.1:9470/v1/overview
until_true curl --silent --fail http://127.0.0.1:9480/

echo "# a worker that hangs is restarted"
systemctl kill --kill-whom main --signal STOP gpufleet-worker
until_true is_restarted
sh blend/run.sh

echo "# every service stops with 0"
# shellcheck disable=SC2086
systemctl stop $services
for service in $services; do
    test "$(systemctl show --property ExecMainStatus --value "$service")" = 0
    test "$(systemctl show --property Result --value "$service")" = success
done
