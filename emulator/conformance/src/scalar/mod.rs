//! The evaluator that expected results come from: one value at a time, by exact arithmetic, and in the words of the
//! PTX ISA. It shares nothing with the emulator, and is written to be checked by reading.

pub mod eight;
pub mod exact;
pub mod float;
pub mod integer;
