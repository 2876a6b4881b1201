//! Checks configuration files of other programs with these programs, if they are installed.

use std::{fs, path::Path, process::Stdio};

use gpufleet_local::programs;
use tokio::process::Command;
use yaml_rust2::YamlLoader;

/// A part of systemd's message about a unit whose program is not on this machine.
const NO_PROGRAM: &str = "is not executable";

/// Checks that the text is YAML. Checks alerting and recording rules with Prometheus' own checker too.
pub async fn yaml(folder: &Path, text: &str) -> Result<(), String> {
    let documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    if documents.iter().all(|document| document["groups"].is_badvalue()) {
        return Ok(());
    }
    let said = check(folder, "rules.yaml", text, "promtool", &["check", "rules"]).await?;
    if said.contains("FAILED") { Err(said) } else { Ok(()) }
}

pub async fn unit(folder: &Path, text: &str) -> Result<(), String> {
    let kind = if text.contains("[Timer]") { "timer" } else { "service" };
    let name = format!("example.{kind}");
    let said = check(folder, &name, text, "systemd-analyze", &["verify"]).await?;
    let faults: Vec<&str> = said.lines().filter(|line| line.contains(&name) && !line.contains(NO_PROGRAM)).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Runs the program on a file with this text, and returns its output. It is empty if the program is not installed.
async fn check(folder: &Path, name: &str, text: &str, program: &str, arguments: &[&str]) -> Result<String, String> {
    let file = folder.join(name);
    fs::write(&file, text).map_err(|error| format!("failed to write {name}: {error}"))?;
    let Some(program) = programs::system(program) else { return Ok(String::new()) };
    let output = Command::new(&program).args(arguments).arg(&file).stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| format!("failed to run {}: {error}", program.display()))?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[tokio::test]
async fn an_unknown_setting_of_a_unit_is_a_fault_and_a_missing_program_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let service = "[Unit]\nDescription=worker\n[Service]\nExecStart=/nowhere/gpufleet-worker run\n";
    assert_eq!(unit(folder.path(), service).await, Ok(()));
    if programs::system("systemd-analyze").is_none() {
        return;
    }
    let error = unit(folder.path(), &format!("{service}Restarts=on-failure\n")).await.unwrap_err();
    assert!(error.contains("Unknown key"), "{error}");
}

#[tokio::test]
async fn yaml_that_can_not_be_read_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(yaml(folder.path(), "scrape_configs:\n  - job_name: gpufleet\n").await, Ok(()));
    assert!(yaml(folder.path(), "a: [1\nb: 2").await.is_err());
}
