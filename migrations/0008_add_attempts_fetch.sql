-- From Timings: how long the attempt read its inputs from the blob store. Attempts from before there were blobs read nothing there, so 0 is
-- true of them, and no row is written again.
--
-- It is not among the columns of `attempts_ended_has_timings`, which are null until the end: a recorder of the release before may be at work
-- during the migration and names no such column. With a null there its ends would be refused, for good, and with a 0 there its starts.
-- So the column is never null, and the check of its own is exact: what has not ended has 0.
alter table attempts
    add column fetch_us bigint not null default 0,
    add constraint attempts_running_has_no_fetch check (finished_at is not null or fetch_us = 0);
