-- A role that may read the ledger and nothing else: for `gpufleet-ledger serve`, and for people who ask with SQL. Run it in the ledger's
-- database as the user who runs `gpufleet-ledger migrate`, because that user owns the tables. Then set a password: \password gpufleet_reader
create role gpufleet_reader login;
alter role gpufleet_reader set default_transaction_read_only = on;
alter role gpufleet_reader set statement_timeout = '30s';
grant usage on schema public to gpufleet_reader;
grant select on all tables in schema public to gpufleet_reader;
-- Later releases add tables.
alter default privileges in schema public grant select on tables to gpufleet_reader;
