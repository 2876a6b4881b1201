//! Structures of the C headers, in the headers' own layout.

pub mod array;
pub mod copy;
pub mod device;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod stream;
pub mod texture;
