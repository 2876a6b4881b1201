//! Tests of the stores: those for all kinds, and those for one kind.

mod folder;
mod proxy;
mod s3;
mod stage;
mod suite;

/// Bytes that differ from piece to piece.
fn array(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % 251) as u8).collect()
}
