-- no-transaction
-- The host programs of an environment or image, newest first. Other jobs have no entry.
--
-- The index is built for one partition at a time, each in a transaction of its own, so that a recorder waits only for that of its month. If it
-- is interrupted, it starts again and skips what is there.
do $$
declare
    partition record;
    child     text;
begin
    create index if not exists jobs_environment on only jobs (coalesce(host_program ->> 'environment', host_program ->> 'image'), id_at, job_id)
        where host_program is not null;
    commit;
    for partition in
        select relname from pg_inherits join pg_class on pg_class.oid = inhrelid
        where inhparent = 'jobs'::regclass order by relname
    loop
        -- A partition that was made or worked on meanwhile has it.
        continue when exists (
            select from pg_index i join pg_inherits on inhrelid = i.indexrelid
            where i.indrelid = partition.relname::regclass and inhparent = 'jobs_environment'::regclass);
        child := partition.relname || '_environment';
        execute format(
            'create index if not exists %I on %I (coalesce(host_program ->> ''environment'', host_program ->> ''image''), id_at, job_id) where host_program is not null',
            child, partition.relname);
        execute format('alter index jobs_environment attach partition %I', child);
        commit;
    end loop;
end
$$
