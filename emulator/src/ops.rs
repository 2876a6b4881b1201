//! The arithmetic of instructions. Each operation is a plain function of one lane; [`lanes`] turns it into a function
//! of 32 lanes, in two builds: one with the vector instructions of the machine and one portable.

pub mod bits;
pub mod carry;
pub mod convert;
pub mod dot;
pub mod exact;
pub mod float;
pub mod half;
pub mod integer;
pub mod lanes;
pub mod math;
pub mod matrix;
pub mod order;
pub mod rare;
