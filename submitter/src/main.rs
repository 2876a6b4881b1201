//! The `gpufleet` command.

fn main() {}
