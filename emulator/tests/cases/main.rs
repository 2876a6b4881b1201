//! Runs kernels in the emulator and compares the results with Rust's. There is one binary, because each one takes time
//! to link. The modules have `cfg(test)` so that clippy recognises their helpers as test code.

#[cfg(test)]
mod accesses;
#[cfg(test)]
mod atomics;
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod chains;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod conversions;
#[cfg(test)]
mod diagnostics;
#[cfg(test)]
mod divergence;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod floats;
#[cfg(test)]
mod fuzzed;
#[cfg(test)]
mod halves;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod integers;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod meetings;
#[cfg(test)]
mod phases;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod registers;
#[cfg(test)]
mod repeats;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod single;
#[cfg(test)]
mod synchronization;
#[cfg(test)]
mod textures;
#[cfg(test)]
mod variables;
