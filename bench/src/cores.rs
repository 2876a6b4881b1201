//! Restricts processes to cores. To measure the worker alone, broker, database and producer must not use its cores.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

/// The number of tries. A try fails if one of the threads ends meanwhile.
const TRIES: usize = 5;

/// The cores of this machine, divided between a worker and all other processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    pub others: Vec<u32>,
    pub worker: Vec<u32>,
}

impl Split {
    /// Divides the cores that this process may use into halves. `None` if there is only one.
    pub fn of_this_machine() -> anyhow::Result<Option<Self>> {
        let status = fs::read_to_string("/proc/self/status").context("failed to read /proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Ok(Self::halves(cores(list.context("/proc/self/status tells no cores")?.trim())?))
    }

    fn halves(mut cores: Vec<u32>) -> Option<Self> {
        let worker = cores.split_off(cores.len().div_ceil(2));
        (!worker.is_empty()).then_some(Self { others: cores, worker })
    }
}

/// Restricts all threads of these processes, and the threads that they will start, to these cores.
pub fn keep(processes: &[u32], cores: &[u32]) -> anyhow::Result<()> {
    let list = cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    processes.iter().try_for_each(|process| keep_one(*process, &list))
}

fn keep_one(process: u32, list: &str) -> anyhow::Result<()> {
    let mut problem = String::new();
    for _ in 0..TRIES {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", list, &process.to_string()]);
        let output = taskset.output().context("failed to run taskset, of util-linux")?;
        if output.status.success() || !Path::new("/proc").join(process.to_string()).exists() {
            return Ok(());
        }
        problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    bail!("taskset could not keep process {process} to the cores {list}: {problem}")
}

/// Parses the kernel's list of cores, such as `0-3,8`.
fn cores(list: &str) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            bail!("{list:?} is no list of cores");
        };
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        assert_eq!(cores("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(cores("5").unwrap(), [5]);
        assert!(cores("").is_err());
    }

    #[test]
    fn the_worker_gets_half_of_the_cores_and_one_alone_is_not_split() {
        let split = Split { others: vec![0, 1], worker: vec![2] };
        assert_eq!(Split::halves(vec![0, 1, 2]), Some(split));
        assert_eq!(Split::halves(vec![7]), None);
    }
}
