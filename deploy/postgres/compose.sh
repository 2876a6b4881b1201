#!/bin/sh
# The image of Postgres runs this once, when it initialises its data. It makes a role that owns the ledger, and one that may only read it.
# Neither is a superuser.
set -e
run() {
    psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
        --set owner="$GPUFLEET_DATABASE_PASSWORD" --set reader="$GPUFLEET_READER_PASSWORD" "$@"
}
run --dbname postgres << 'END'
create role gpufleet login password :'owner';
create role gpufleet_reader login password :'reader';
create database gpufleet owner gpufleet;
END
run --dbname gpufleet << 'END'
alter role gpufleet_reader set default_transaction_read_only = on;
alter role gpufleet_reader set statement_timeout = '30s';
grant usage on schema public to gpufleet_reader;
-- For the tables that `gpufleet-ledger migrate` makes.
alter default privileges for role gpufleet in schema public grant select on tables to gpufleet_reader;
END
