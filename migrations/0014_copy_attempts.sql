-- no-transaction
-- Copies the attempts into their months, ten thousand in a transaction, so that no recorder waits. If it is interrupted, it starts again and
-- skips what is there. What a recorder writes meanwhile is copied by the trigger of migration 13: the newer row of the two is the trigger's, and
-- stays.
do $$
declare
    -- Below all ids.
    last_job     uuid    := '00000000-0000-0000-0000-000000000000';
    last_attempt integer := 0;
    copied       bigint;
begin
    loop
        with batch as materialized (
            select * from attempts where (job_id, attempt) > (last_job, last_attempt) order by job_id, attempt limit 10000
        ), inserted as (
            insert into attempts_by_month
            select batch.*, coalesce(job_keys.id_at, job_id_at(batch.job_id))
            from batch left join job_keys on job_keys.job_id = batch.job_id
            on conflict do nothing
        )
        select (array_agg(job_id order by job_id desc, attempt desc))[1],
               (array_agg(attempt order by job_id desc, attempt desc))[1],
               count(*)
        into last_job, last_attempt, copied
        from batch;
        exit when copied = 0;
        commit;
    end loop;
end
$$
