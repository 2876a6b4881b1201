//! The workspace that this command belongs to, and cargo in it.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use gpufleet_local::{Signal, process::Group};
use tokio::process::Command;

use crate::interrupt::interrupted;

/// cargo and what it runs end at once on a signal; a test binary may be in the middle of something.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").to_owned()
}

/// Where cargo puts programs of the profile that this one was built in.
pub fn programs() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe().context("find this program")?;
    Ok(me.parent().context("this program lies in no folder")?.to_owned())
}

/// Where cargo puts everything.
pub fn target() -> anyhow::Result<PathBuf> {
    Ok(programs()?.parent().context("the programs lie in no target folder")?.to_owned())
}

/// cargo in the workspace, with its output shown.
pub fn cargo<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // It would make cargo build packages again.
    remove_package(&mut command);
    command
}

/// Removes the variables in which cargo told us about our own package.
pub fn remove_package(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
}

/// Runs a command to its end. When we are interrupted, so are the command and what it runs, and its end is waited for.
///
/// They are a process group of their own: a signal to cargo alone would leave what it runs, and a signal that only we get, such as
/// SIGTERM, would reach neither. The terminal's Ctrl-C then reaches only us as well, and is passed on.
pub async fn run(mut command: Command) -> anyhow::Result<()> {
    let described = format!("{:?}", command.as_std());
    // Who is not in the terminal's foreground would be stopped when reading from it.
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    // Before the start: from now on a signal waits for us to look, instead of ending us without the command.
    let mut interrupted = std::pin::pin!(interrupted());
    tokio::select! {
        biased;
        interrupted = &mut interrupted => return Err(interrupted.into()),
        () = std::future::ready(()) => {}
    }
    let mut child = command.spawn().with_context(|| format!("start {described}"))?;
    let group = Group::led_by(child.id().context("a command that was not waited for has a process id")?);
    let interrupted = tokio::select! {
        status = child.wait() => {
            group.release();
            let status = status.with_context(|| format!("wait for {described}"))?;
            if status.success() {
                return Ok(());
            }
            bail!("{described} ended with {status}");
        }
        interrupted = &mut interrupted => interrupted,
    };
    group.signal(Signal::Interrupt);
    // Whatever is still there after that is killed as the group goes.
    tokio::time::timeout(ENDS_WITHIN, child.wait()).await.ok();
    Err(interrupted.into())
}

/// The arguments of a command, as they are shown.
pub fn arguments(command: &Command) -> String {
    let arguments = command.as_std().get_args().map(|argument| argument.to_string_lossy().into_owned());
    arguments.collect::<Vec<_>>().join(" ")
}

/// What a command prints.
pub async fn output_of(mut command: Command) -> anyhow::Result<String> {
    let described = format!("{:?}", command.as_std());
    let ended = command.stderr(Stdio::inherit()).output().await.with_context(|| format!("start {described}"))?;
    ensure!(ended.status.success(), "{described} failed: {}", ended.status);
    String::from_utf8(ended.stdout).with_context(|| format!("{described} prints text"))
}

/// The programs that make a fleet, and the emulated device.
pub const FLEET_PACKAGES: [&str; 4] = ["gpufleet", "gpufleet-worker", "gpufleet-ledger", "gpufleet-emulator"];

/// Set for a command that another one starts after it has built the whole workspace.
pub const BUILT_VARIABLE: &str = "XTASK_WORKSPACE_IS_BUILT";

/// Builds the workspace with its tests. All that CI runs is built by this one selection, because cargo would build shared crates again for
/// another one, whose features differ.
pub async fn build_everything() -> anyhow::Result<()> {
    run(cargo(["build", "--workspace", "--all-targets"])).await
}

/// Builds packages in the profile of this program, unless they are built already.
pub async fn build(packages: &[&str]) -> anyhow::Result<()> {
    if std::env::var_os(BUILT_VARIABLE).is_some() {
        return Ok(());
    }
    let mut arguments = vec!["build"];
    if programs()?.ends_with("release") {
        arguments.push("--release");
    }
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    run(cargo(arguments)).await
}
