//! Builds for systems with an older C library than this machine's, with zig's C compiler and linker.

use anyhow::Context as _;
use gpufleet_local::setup::zig_environment;
use tokio::process::Command;

use crate::workspace;

/// Of the C library. Rust's own libraries need it, and wheels for it are called manylinux2014.
pub const C_LIBRARY: &str = "2.17";

/// Rust's name for such systems. It is also the folder below `target` for what is built for them.
pub fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// cargo, which takes the options of `cargo build`.
pub fn build(options: &[&str]) -> anyhow::Result<Command> {
    let interpreter = zig_environment()?;
    let program = interpreter.parent().context("an interpreter lies in a folder")?.join("cargo-zigbuild");
    let mut build = Command::new(program);
    build.arg("zigbuild").args(["--target", &format!("{}.{C_LIBRARY}", triple())]).args(options);
    build.current_dir(workspace::root());
    workspace::remove_package(&mut build);
    with_zig(&mut build)?;
    Ok(build)
}

/// Lets a command find zig.
pub fn with_zig(command: &mut Command) -> anyhow::Result<()> {
    command.env("CARGO_ZIGBUILD_PYTHON_PATH", zig_environment()?).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    Ok(())
}
