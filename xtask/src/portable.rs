//! Builds programs that run on any Linux system: zig's C compiler and linker link them with musl. A library that other programs load is
//! linked with an old glibc instead.

use std::path::Path;

use anyhow::Context as _;
use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::workspace;

/// Returns Rust's name of the target system. The folder in `target` for these builds has the same name.
pub fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// The glibc of the oldest systems that run the wheel too.
const GLIBC: &str = "2.17";

/// Returns Rust's name of the system of libraries. The folder in `target` for these builds has the same name.
pub fn library_triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Returns the command that builds a library with these options of `cargo build`.
pub fn build_library(options: &[&str]) -> anyhow::Result<Command> {
    zigbuild(&format!("{}.{GLIBC}", library_triple()), options)
}

/// Returns the command that builds with these options of `cargo build`.
pub async fn build(options: &[&str]) -> anyhow::Result<Command> {
    ensure_standard_library().await?;
    zigbuild(&triple(), options)
}

fn zigbuild(target: &str, options: &[&str]) -> anyhow::Result<Command> {
    let interpreter = Part::Zig.interpreter()?;
    let program = interpreter.parent().context("an interpreter lies in a folder")?.join("cargo-zigbuild");
    let mut build = Command::new(program);
    build.args(["zigbuild", "--target", target]).args(options);
    build.current_dir(workspace::root());
    workspace::remove_package(&mut build);
    with_zig(&mut build)?;
    Ok(build)
}

/// Adds zig to the path of a command.
pub fn with_zig(command: &mut Command) -> anyhow::Result<()> {
    command
        .env("CARGO_ZIGBUILD_PYTHON_PATH", Part::Zig.interpreter()?)
        .env_remove("PYTHONPATH")
        .env_remove("PYTHONHOME");
    Ok(())
}

/// Installs Rust's standard library for musl, unless it is there. rustup or the packages of a distribution have it.
async fn ensure_standard_library() -> anyhow::Result<()> {
    let triple = triple();
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", &triple]).current_dir(workspace::root());
    let output = rustc.output().await.context("failed to run rustc")?;
    if Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", &triple]).current_dir(workspace::root());
    workspace::run(rustup).await.with_context(|| {
        format!("failed to install Rust's standard library for {triple}, which the archive's command is linked with")
    })
}
