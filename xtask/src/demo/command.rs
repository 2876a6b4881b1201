//! Runs the `gpufleet` command, and shows it as a user would type it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpufleet_local::{Endpoints, LocalFleet};
use tokio::process::Command;

use crate::workspace;

/// The command, run in the demo's folder and connected to the demo's fleet.
pub struct Gpufleet {
    program: PathBuf,
    folder: PathBuf,
    endpoints: Endpoints,
    /// An environment variable by which the fleet's guard finds the process.
    marker: (&'static str, PathBuf),
}

impl Gpufleet {
    pub fn new(fleet: &LocalFleet, folder: &Path) -> anyhow::Result<Self> {
        let (name, state) = fleet.services().state().marker();
        Ok(Self {
            program: workspace::programs()?.join("gpufleet"),
            folder: folder.to_owned(),
            endpoints: fleet.endpoints().clone(),
            marker: (name, state.to_owned()),
        })
    }

    /// Prints the command line, runs it, and lets it print.
    pub async fn show(&self, arguments: &[&str]) -> anyhow::Result<()> {
        eprintln!("$ {}", line(arguments));
        let status = self.command(arguments).status().await.context("failed to start gpufleet")?;
        if !status.success() {
            bail!("`{}` ended with {status}", line(arguments));
        }
        Ok(())
    }

    /// Runs the command without showing it, and returns its output.
    pub async fn output(&self, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let output = self.command(arguments).output().await.context("failed to start gpufleet")?;
        if !output.status.success() {
            bail!(
                "`{}` ended with {}: {}",
                line(arguments),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(output.stdout)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder).kill_on_drop(true).env(self.marker.0, &self.marker.1);
        command
            .env("GPUFLEET_AMQP_URL", &self.endpoints.amqp_url)
            .env("GPUFLEET_DATABASE_URL", &self.endpoints.database_url);
        command
    }
}

/// Formats the command line so that it can be pasted into a shell.
fn line(arguments: &[&str]) -> String {
    let quoted = |argument: &&str| {
        let plain = argument.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=.,:/".contains(&byte));
        if plain { (*argument).to_owned() } else { format!("'{argument}'") }
    };
    format!("gpufleet {}", arguments.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shown_line_can_be_pasted_into_a_shell() {
        assert_eq!(super::line(&["submit", "--out", "y=y.png:u8[4,4]"]), "gpufleet submit --out 'y=y.png:u8[4,4]'");
    }
}
