//! A test program that cargo has built.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::workspace::{self, cargo};

/// A test program.
#[derive(Debug)]
pub struct TestProgram {
    pub target: String,
    /// The folder of its package, in which cargo runs it.
    pub package: PathBuf,
    pub executable: PathBuf,
}

impl TestProgram {
    /// Builds the test programs of the workspace, and returns them in cargo's order.
    pub fn build_all() -> anyhow::Result<Vec<Self>> {
        let mut command = cargo(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
        let output = command.as_std_mut().stderr(Stdio::inherit()).output().context("failed to start cargo")?;
        ensure!(output.status.success(), "the tests could not be built: cargo ended with {}", output.status);
        let mut programs: Vec<Self> = String::from_utf8(output.stdout)?
            .lines()
            .filter_map(|line| Self::of_message(line).transpose())
            .collect::<Result<_, _>>()?;
        programs.sort_by(|a, b| a.executable.cmp(&b.executable));
        Ok(programs)
    }

    /// Returns the test program that a line of cargo's messages announces, if there is one.
    fn of_message(line: &str) -> anyhow::Result<Option<Self>> {
        let message: serde_json::Value = serde_json::from_str(line).context("failed to read cargo's messages")?;
        let (Some(executable), Some(true)) = (message["executable"].as_str(), message["profile"]["test"].as_bool())
        else {
            return Ok(None);
        };
        let manifest = message["manifest_path"].as_str().context("cargo names no manifest")?;
        let package = Path::new(manifest).parent().context("a manifest lies in no folder")?.to_owned();
        let target = message["target"]["name"].as_str().context("cargo names no target")?.to_owned();
        Ok(Some(Self { target, package, executable: executable.into() }))
    }

    /// Returns the folder of its package and its target, such as `ledger/postgres`.
    pub fn name(&self) -> String {
        let folder = self.package.strip_prefix(workspace::root()).unwrap_or(&self.package);
        format!("{}/{}", folder.display(), self.target)
    }

    /// Returns its command with the environment that cargo gives a test.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        workspace::remove_package(&mut command);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_told_from_what_else_cargo_builds() {
        let artifact = |is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml","target":{{"name":"scenarios"}},
                    "profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let program = TestProgram::of_message(&artifact(true, r#""/w/target/scenarios-1""#)).unwrap().unwrap();
        assert_eq!((&*program.target, &*program.package), ("scenarios", Path::new("/w/tests")));
        assert_eq!(program.executable, PathBuf::from("/w/target/scenarios-1"));
        for other in [
            artifact(false, r#""/w/target/gpufleet""#),
            artifact(true, "null"),
            r#"{"reason":"build-finished"}"#.into(),
        ] {
            assert!(TestProgram::of_message(&other).unwrap().is_none(), "{other}");
        }
    }
}
