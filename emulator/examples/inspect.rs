//! Prints what the emulator makes of PTX files: `cargo run -p gpufleet-emulator --example inspect -- FILE...`

use std::sync::Arc;

use gpufleet_emulator::memory::Memory;
use gpufleet_emulator::module::{ComputeCapability, Module};

/// Device memory in bytes, enough for the variables of any module.
const MEMORY_BYTES: u64 = 1 << 30;

fn main() -> std::io::Result<()> {
    let memory = Arc::new(Memory::new(MEMORY_BYTES)?);
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path)?;
        match Module::load(&text, &memory, ComputeCapability { major: 9, minor: 0 }) {
            Err(error) => println!("{path}: {error}"),
            Ok(module) => {
                println!("{path}");
                for entry in module.entries() {
                    println!(
                        "  {}: {} parameters in {} bytes, {} registers, {} bytes shared, {} bytes local",
                        entry.name,
                        entry.params.len(),
                        entry.params_bytes,
                        entry.registers,
                        entry.shared_bytes,
                        entry.frame_bytes
                    );
                }
            }
        }
    }
    Ok(())
}
