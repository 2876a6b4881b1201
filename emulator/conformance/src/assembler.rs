//! Checks case files with NVIDIA's assembler: what it refuses is not PTX, whatever our grammar says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context as _, bail};

use crate::case::Case;

/// Returns the last line of `ptxas --version`.
pub fn version(ptxas: &Path) -> anyhow::Result<String> {
    let output =
        Command::new(ptxas).arg("--version").output().with_context(|| format!("failed to run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("release")).unwrap_or("an unknown ptxas");
    Ok(line.trim().trim_start_matches("Cuda compilation tools, ").to_owned())
}

/// Assembles files in parallel; returns those that are refused, with the messages.
pub fn assemble(ptxas: &Path, paths: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let (next, refused) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get());
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..workers {
            threads.push(scope.spawn(|| -> anyhow::Result<()> {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(message) = one(ptxas, path)? {
                        let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                        refused.push((path.clone(), message));
                    }
                }
                Ok(())
            }));
        }
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread that ran ptxas panicked"),
            }
        }
        Ok(())
    })?;
    let mut refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    refused.sort();
    Ok(refused)
}

/// Assembles one file; returns the message if it is refused.
fn one(ptxas: &Path, path: &Path) -> anyhow::Result<Option<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let case = Case::parse(&text).with_context(|| format!("failed to read {}", path.display()))?;
    let target = case.target().with_context(|| format!("{} has no target", path.display()))?;
    let output = Command::new(ptxas)
        // The code itself is not used, so optimising it is not worth the time.
        .args([&format!("-arch=sm_{target}"), "-O0", "-o", "/dev/null"])
        .arg(path)
        .output()
        .with_context(|| format!("failed to run {}", ptxas.display()))?;
    if output.status.success() {
        return Ok(None);
    }
    let lines = text.lines().collect::<Vec<_>>();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let mut told = String::new();
    for message in messages.lines().filter(|line| line.contains("line ")) {
        let number =
            message.split("line ").nth(1).and_then(|rest| rest.split(';').next()?.trim().parse::<usize>().ok());
        let source = number.and_then(|number| lines.get(number.checked_sub(1)?)).unwrap_or(&"");
        let what = message.split(';').nth(1).unwrap_or(message).trim();
        told += &format!("\n    {source}\n        {what}");
    }
    Ok(Some(if told.is_empty() { messages } else { told }))
}
