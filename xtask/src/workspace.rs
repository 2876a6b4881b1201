//! The workspace of this program, and cargo in it.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use gpufleet_local::{Signal, process::Group};
use tokio::process::Command;

use crate::interrupt::interrupted;

/// How long to wait for a command after a signal. cargo and its programs end at once; a test binary may take a moment.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").to_owned()
}

/// Returns the folder for programs of the profile that this program was built in.
pub fn programs() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe().context("failed to find this program")?;
    Ok(me.parent().context("this program lies in no folder")?.to_owned())
}

/// Returns cargo's target folder.
pub fn target() -> anyhow::Result<PathBuf> {
    Ok(programs()?.parent().context("the programs lie in no target folder")?.to_owned())
}

/// Makes an empty folder, in place of what is there.
pub fn fresh_folder(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("failed to remove {}", folder.display()));
        }
        _ => {}
    }
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

/// Returns cargo in the workspace, with its output shown.
pub fn cargo<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // These variables would make cargo build packages again.
    remove_package(&mut command);
    command
}

/// Removes the variables by which cargo describes our own package to us.
pub fn remove_package(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
}

/// Runs a command to its end. If this process is interrupted, so are the command and its children, and this function waits for the end of
/// the command.
///
/// The command gets a process group of its own. A signal to cargo alone would leave its children running, and a signal to this process
/// alone, such as SIGTERM, would reach neither. The terminal's Ctrl-C then reaches only this process as well, which passes it on.
pub async fn run(mut command: Command) -> anyhow::Result<()> {
    let described = format!("{:?}", command.as_std());
    // A process that is not in the terminal's foreground group would be stopped when it reads from the terminal.
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    // Registered before the start: from now on, a signal waits to be handled instead of ending this process without the command.
    let mut interrupted = std::pin::pin!(interrupted());
    tokio::select! {
        biased;
        interrupted = &mut interrupted => return Err(interrupted.into()),
        () = std::future::ready(()) => {}
    }
    let mut child = command.spawn().with_context(|| format!("failed to start {described}"))?;
    let group = Group::led_by(child.id().context("a command that was not waited for has a process id")?);
    let interrupted = tokio::select! {
        status = child.wait() => {
            group.release();
            let status = status.with_context(|| format!("failed to wait for {described}"))?;
            if status.success() {
                return Ok(());
            }
            bail!("{described} ended with {status}");
        }
        interrupted = &mut interrupted => interrupted,
    };
    group.signal(Signal::Interrupt);
    // What is still running afterwards is killed when the group is dropped.
    tokio::time::timeout(ENDS_WITHIN, child.wait()).await.ok();
    Err(interrupted.into())
}

/// Formats the arguments of a command for display.
pub fn arguments(command: &Command) -> String {
    let arguments = command.as_std().get_args().map(|argument| argument.to_string_lossy().into_owned());
    arguments.collect::<Vec<_>>().join(" ")
}

/// Runs a command and returns its output.
pub async fn output_of(mut command: Command) -> anyhow::Result<String> {
    let described = format!("{:?}", command.as_std());
    let ended =
        command.stderr(Stdio::inherit()).output().await.with_context(|| format!("failed to start {described}"))?;
    ensure!(ended.status.success(), "{described} failed: {}", ended.status);
    String::from_utf8(ended.stdout).with_context(|| format!("{described} prints text"))
}

/// The packages of a fleet's programs and of the emulated device.
pub const FLEET_PACKAGES: [&str; 4] = ["gpufleet-cli", "gpufleet-worker", "gpufleet-ledger", "gpufleet-emulator"];

/// The variable for a command that is started after the whole workspace was built.
pub const BUILT_VARIABLE: &str = "XTASK_WORKSPACE_IS_BUILT";

/// Builds the workspace with its tests. CI uses only this selection of packages. Another selection would have other features, and cargo
/// would build shared crates again.
pub async fn build_everything() -> anyhow::Result<()> {
    run(cargo(["build", "--workspace", "--all-targets"])).await
}

/// Builds packages in the profile of this program, unless the workspace is already built.
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
