//! `gpufleet-ledger` as a process, between a real broker and a real database, both private to this program and gone with it.

// Said to be tests although nothing else is here, for then they may unwrap.
#[cfg(test)]
mod exits;
#[cfg(test)]
mod ground;
#[cfg(test)]
#[path = "../poll/mod.rs"]
mod poll;
#[cfg(test)]
mod recording;
