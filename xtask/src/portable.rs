//! Programs that need nothing of the system they run on: linked with musl, by zig's C compiler and linker.

use std::path::Path;

use anyhow::Context as _;
use gpufleet_local::setup::zig_environment;
use tokio::process::Command;

use crate::workspace;

/// Rust's name for such systems. It is also the folder below `target` for what is built for them.
pub fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// cargo, which takes the options of `cargo build`.
pub async fn build(options: &[&str]) -> anyhow::Result<Command> {
    ensure_standard_library().await?;
    let interpreter = zig_environment()?;
    let program = interpreter.parent().context("an interpreter lies in a folder")?.join("cargo-zigbuild");
    let mut build = Command::new(program);
    build.args(["zigbuild", "--target", &triple()]).args(options);
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

/// Rust's standard library for musl comes with rustup, or with the packages of a distribution.
async fn ensure_standard_library() -> anyhow::Result<()> {
    let triple = triple();
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", &triple]).current_dir(workspace::root());
    let output = rustc.output().await.context("run rustc")?;
    if Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", &triple]).current_dir(workspace::root());
    workspace::run(rustup).await.with_context(|| {
        format!("install Rust's standard library for {triple}, which the archive's command is linked with")
    })
}
