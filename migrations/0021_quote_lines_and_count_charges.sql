-- Of a failure: the line of the program that failed, with its neighbours. At most seven lines, of which failure_line is the fourth, or earlier
-- near the beginning of the program. Null if the line is not known.
--
-- Of an attempt: the device time that its pool was charged for: the executor's time, and the wait for memory and for the blob store in a slot
-- that others could have had. Null if the worker did not measure it. The roll-ups have the sum over the same attempts as device_us; an attempt
-- without a charge counts with its device_us.
--
-- All of these are null for what was recorded before. A recorder of the release before may merge roll-ups once more, without the charges. So a
-- charge counts for at least device_us when it is read.

-- Other statements queue behind a lock request that waits, so it waits for a moment only, again and again. Merging locks in the same order.
do $$
begin
    perform set_config('lock_timeout', '200ms', true);
    for try in 1..1000 loop
        begin
            alter table rollup_deltas add column charged_us bigint;
            alter table rollups add column charged_us bigint;
            alter table attempts add column failure_source text, add column charged_us bigint;
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
