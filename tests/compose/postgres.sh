#!/bin/sh
# Starts Postgres. Without data it initialises them first, with a server that only listens on the Unix socket.
set -eu
if ! test -s "$PGDATA/PG_VERSION"; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256 > /dev/null
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl start --wait --options '-h ""' > /dev/null
    for script in /docker-entrypoint-initdb.d/*.sh; do
        . "$script"
    done
    pg_ctl stop --wait > /dev/null
fi
exec postgres -h '*'
