//! The evaluator of expected results: one value at a time, in exact arithmetic, worded like the PTX ISA. It shares no
//! code with the emulator, and is written to be checked by reading.

pub mod eight;
pub mod exact;
pub mod float;
pub mod integer;
