//! `gpufleet local logs`: the ends of the logs of the fleet's processes.

use std::path::Path;

use gpufleet_local::Log;

use super::complaint as of_local;
use crate::{complaint::Complaint, exit::Exit, output};

/// Prints the last lines of the process's log, or of all logs.
pub fn print(dir: &Path, process: Option<&str>, lines: u32) -> Result<(), Complaint> {
    let logs = gpufleet_local::logs(dir).map_err(of_local)?;
    if logs.is_empty() {
        return Err(Complaint::new(Exit::NotFound, format!("there are no logs of a fleet in {}", dir.display()))
            .hint("start a fleet: gpufleet local up; or name the folder of another one with --dir"));
    }
    match process {
        Some(process) => output::emit(&text(one(&logs, process, dir)?, lines)?),
        None => output::emit(&all(&logs, lines)?),
    }
}

fn one<'a>(logs: &'a [Log], process: &str, dir: &Path) -> Result<&'a Log, Complaint> {
    logs.iter().find(|log| log.process == process).ok_or_else(|| {
        let names: Vec<&str> = logs.iter().map(|log| log.process.as_str()).collect();
        Complaint::new(Exit::NotFound, format!("the fleet in {} has no log of process {process:?}", dir.display()))
            .hint(format!("it has logs of {}", names.join(", ")))
    })
}

/// The logs one after the other, each below its path.
fn all(logs: &[Log], lines: u32) -> Result<String, Complaint> {
    let texts = logs.iter().map(|log| Ok(format!("==> {} <==\n{}", log.path.display(), text(log, lines)?)));
    Ok(texts.collect::<Result<Vec<String>, Complaint>>()?.join("\n"))
}

fn text(log: &Log, lines: u32) -> Result<String, Complaint> {
    let last = log.last_lines(lines as usize).map_err(of_local)?;
    Ok(last.into_iter().map(|line| line + "\n").collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fleet() -> (tempfile::TempDir, Vec<Log>) {
        let folder = tempfile::tempdir().unwrap();
        let logs = ["broker", "gpufleet-w1"].map(|process| {
            let path = folder.path().join(format!("{process}.log"));
            fs::write(&path, format!("{process} starts\n{process} is ready\n")).unwrap();
            Log { process: process.to_owned(), path }
        });
        (folder, logs.to_vec())
    }

    #[test]
    fn each_log_stands_below_its_path() {
        let (folder, logs) = fleet();
        let folder = folder.path().display();
        let expected = format!(
            "==> {folder}/broker.log <==\nbroker is ready\n\n==> {folder}/gpufleet-w1.log <==\ngpufleet-w1 is ready\n"
        );
        assert_eq!(all(&logs, 1).unwrap(), expected);
    }

    #[test]
    fn one_log_stands_alone() {
        let (folder, logs) = fleet();
        let log = one(&logs, "broker", folder.path()).unwrap();
        assert_eq!(text(log, 20).unwrap(), "broker starts\nbroker is ready\n");
    }

    #[test]
    fn an_unknown_process_is_told_which_logs_there_are() {
        let (folder, logs) = fleet();
        let complaint = one(&logs, "w1", folder.path()).unwrap_err();
        assert_eq!(complaint.exit, Exit::NotFound);
        assert_eq!(complaint.hint.unwrap(), "it has logs of broker, gpufleet-w1");
    }
}
