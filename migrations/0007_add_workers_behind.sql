-- By how much the heartbeat that came last was behind the database's clock: what the two clocks differ by, and how long it waited in
-- the broker. The next one that is behind by as much has waited no longer than it, so its worker was heard just now.
alter table workers add column behind interval;
