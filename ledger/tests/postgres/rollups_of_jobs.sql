-- The roll-ups of all jobs by the day, by the hour of those that ended in the last 60 days, and by five minutes of those that ended in the last
-- two days, each with the same sketch of its stages.
insert into rollups
select grain, at, pool,
       case grouping(kernel, user_id, worker, label)
           when 15 then '' when 7 then 'kernel' when 11 then 'user' when 13 then 'worker' else 'label:team''s' end,
       coalesce(kernel, user_id, worker, label, ''),
       count(*) filter (where state = 'succeeded'), count(*) filter (where state = 'failed'), 0, 0,
       count(*) filter (where state = 'dead'), 0, 0, 0, 0, 0, 0, 0, 90 * count(*), 30 * count(*), 0, 0, '\xSKETCH'
from (select *, labels ->> 'team''s' as label, finished_at at time zone 'utc' as ended from jobs) as jobs,
     lateral (values ('day', date_trunc('day', ended) at time zone 'utc'),
                     ('hour', date_trunc('hour', ended) at time zone 'utc'),
                     ('five_minutes', date_bin('5 minutes', finished_at, timestamptz 'epoch'))) as grains (grain, at)
where grain = 'day' or at > now() - case grain when 'hour' then interval '60 days' else interval '2 days' end
group by grain, at, pool, grouping sets ((), (kernel), (user_id), (worker), (label));
