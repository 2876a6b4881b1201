//! Tests of the ledger on a private Postgres, which ends with this program.

// Marked as a test module, so that clippy allows `unwrap`.
#[cfg(feature = "serve")]
#[cfg(test)]
mod api;
#[cfg(test)]
mod crowded;
#[cfg(test)]
mod database;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod heartbeats;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod host_programs;
#[cfg(feature = "serve")]
#[cfg(test)]
mod http;
#[cfg(test)]
mod labels;
#[cfg(test)]
mod migrating;
#[cfg(test)]
mod months;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod planned_statistics;
#[cfg(test)]
mod plans;
#[cfg(test)]
#[path = "../poll/mod.rs"]
mod poll;
#[cfg(test)]
mod pruning;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod sessions;
#[cfg(feature = "serve")]
#[cfg(test)]
mod standby;
#[cfg(test)]
mod statistics;
