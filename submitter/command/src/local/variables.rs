//! `gpufleet local env` and `gpufleet local url`: the addresses of the fleet, for other programs.

use std::{collections::BTreeMap, path::Path};

use clap::ValueEnum;

use super::complaint as of_local;
use crate::{complaint::Complaint, exit::Exit, output, permissions::quoted};

/// The format of the variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Commands for the shell
    Shell,
    /// JSON for programs
    Json,
}

/// Prints the variables.
pub fn print(dir: &Path, format: Format) -> Result<(), Complaint> {
    let variables = read(dir)?;
    match format {
        Format::Shell => output::emit(&commands(&variables)),
        Format::Json => output::emit_json(&variables.into_iter().collect::<BTreeMap<_, _>>()),
    }
}

/// Prints the URL of the broker.
pub fn print_url(dir: &Path) -> Result<(), Complaint> {
    let endpoints = gpufleet_local::running(dir).ok_or_else(|| not_running(dir))?;
    output::emit(&format!("{}\n", endpoints.amqp_url))
}

fn read(dir: &Path) -> Result<Vec<(String, String)>, Complaint> {
    gpufleet_local::environment(dir).map_err(of_local)?.ok_or_else(|| not_running(dir))
}

fn not_running(dir: &Path) -> Complaint {
    Complaint::new(Exit::Broker, format!("no fleet is running in {}", dir.display()))
        .hint("start it: gpufleet local up; or name the folder of another one with --dir")
}

fn commands(variables: &[(String, String)]) -> String {
    variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_each_value_as_it_is() {
        let value = r#"amqp://u:p$HOME'`"\ *@h"#;
        let commands = commands(&[("URL".to_owned(), value.to_owned())]);
        let printed = Command::new("sh").args(["-c", &format!("{commands}printenv URL")]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&printed.stdout), format!("{value}\n"));
    }

    #[test]
    fn a_folder_without_a_fleet_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("none");
        for complaint in [print(&dir, Format::Shell).unwrap_err(), print_url(&dir).unwrap_err()] {
            assert_eq!(complaint.exit, Exit::Broker);
            assert_eq!(complaint.message, format!("no fleet is running in {}", dir.display()));
            assert!(complaint.hint.unwrap().contains("gpufleet local up"));
        }
    }
}
