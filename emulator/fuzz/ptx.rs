//! The libFuzzer target: any text is loaded or refused, and a loaded text runs or fails, without a panic.
#![no_main]

mod exercise;
mod mutate;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| exercise::exercise(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // A quarter of the mutations is left to libFuzzer, which knows the dictionary and the values that the code compared
    // with.
    let ours = if seed % 4 == 0 { None } else { mutate::mutate(&mut data[..max_size], size, seed / 4) };
    ours.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});
