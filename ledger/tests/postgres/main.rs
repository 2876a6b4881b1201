//! The ledger against a real Postgres, private to this program and gone with it.

// Said to be tests although nothing else is here, for then they may unwrap.
#[cfg(test)]
mod crowded;
#[cfg(test)]
mod database;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod migrating;
#[cfg(test)]
mod months;
#[cfg(test)]
#[path = "../poll/mod.rs"]
mod poll;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod recorder;
