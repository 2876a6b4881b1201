-- COUNT jobs over the last 24 months, evenly, with their attempts. Every combination of two filters meets, but for the jobs that died: one in
-- a thousand, of the values that end with 0 alone.
select count(ensure_jobs_partition(now() - interval '1 month' * month)) from generate_series(0, 23) as month;
with numbers as (
   select number, (extract(epoch from now() - interval '23 months') * 1000)::bigint
       + (number * extract(epoch from now() - (now() - interval '23 months')) * 1000 / COUNT)::bigint as ms
   from generate_series(1, COUNT) as number
), made as (
   select *, to_timestamp(ms / 1000) + (ms % 1000) * interval '1 millisecond' as at,
          (lpad(to_hex(ms), 12, '0') || '7' || substr(md5(number::text), 1, 3) || '8' || substr(md5(number::text), 4, 15))::uuid as job_id,
          hashint8(number) & 1048575 as dice, case when (hashint8(number) & 1048575) % 840 = 0 then 0 else hashint8(number + 1000000007) & 1048575 end as other
   from numbers
)
insert into jobs (job_id, id_at, created_at, state, pool, priority, name, labels, program, kernel, user_id, worker, attempt,
                  attempt_ended, started_at, final_attempt, finished_at)
select job_id, at, at,
       case when dice % 840 = 0 then 'dead' when other % 8 = 0 then 'failed' else 'succeeded' end,
       'pool-' || dice % 3, 'normal', 'name-' || dice % 8, jsonb_build_object('team''s', (other / 8 % 5)::text), 'catalog',
       'kernel-' || dice % 5, 'user-' || other / 64 % 4, 'worker-' || dice % 7, 1, true, at, 1, at + interval '1 second'
from made;
insert into attempts (job_id, id_at, attempt, state, worker, device, device_name, emulated, started_at, finished_at, output_bytes,
                      queue_us, wait_us, compile_us, load_us, copy_in_us, launches_us, copy_out_us, total_us, device_bytes_peak,
                      module_cached)
select job_id, id_at, 1, state, worker, 0, 'GPU', false, started_at, finished_at, 0, 10, 20, 40, 50, 60, '{3,4}', 70, 90, 80, true
from jobs;
