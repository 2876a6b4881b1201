//! Tests of `gpufleet-ledger` as a process, with a private broker and a private database, which end with this program.

// Marked as a test module, so that clippy allows `unwrap`.
#[cfg(test)]
mod counting;
#[cfg(test)]
mod exits;
#[cfg(test)]
mod ground;
#[cfg(test)]
#[path = "../poll/mod.rs"]
mod poll;
#[cfg(test)]
mod recording;
#[cfg(test)]
mod starving;
