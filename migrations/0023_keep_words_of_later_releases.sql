-- A worker of a later release may report states that this release does not know. They are kept and shown as text.
--
-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            alter table jobs drop constraint jobs_state_known;
            alter table attempts drop constraint attempts_state_known;
            exit;
        exception when lock_not_available then
            if try = 1000 then
                raise;
            end if;
            perform pg_sleep(0.1);
        end;
    end loop;
    perform set_config('lock_timeout', '0', true);
end
$$;

-- The kinds of events that no recorder of this release knows, with the latest event of each. A recorder keeps few kinds.
create table later_events (
    kind       text        primary key,
    -- By the database's clock.
    first_at   timestamptz not null,
    last_at    timestamptz not null,
    -- As JSON, cut to a bound.
    last_event text        not null
);
