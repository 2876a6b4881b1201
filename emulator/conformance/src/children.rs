//! Runs cases in child processes, because a fault ruins a process's CUDA context, a driver may crash, and a kernel may
//! never end. Each of these costs one case; the rest continues in a new child.
//!
//! A child reads paths of case files from standard input, one per line, and writes one line for each: `ok` and the
//! words of `out`, `load` and a message, or `run` and a status, after which it exits.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::{
    driver::{Driver, RunError},
    files,
};

/// Time limit of a case. A case takes milliseconds, or a second on a busy machine, so a kernel that takes this long
/// never ends.
const CASE_WITHIN: Duration = Duration::from_secs(60);

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ran(Vec<u64>),
    Failed(RunError),
    /// The process ended without an answer, or did not end.
    Lost(&'static str),
}

/// Runs a child; the arguments that started it name the driver.
pub fn serve(driver: &Driver) -> anyhow::Result<()> {
    for line in io::stdin().lines() {
        let path = line.context("failed to read from the parent")?;
        let outcome = driver.run(&files::read(Path::new(&path))?);
        let mut out = io::stdout().lock();
        match &outcome {
            Ok(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
                writeln!(out, "ok {}", words.join(" "))
            }
            Err(RunError::Load(message)) => writeln!(out, "load {message}"),
            Err(RunError::Run(status)) => writeln!(out, "run {status}"),
        }
        .and_then(|()| out.flush())
        .context("failed to answer the parent")?;
        if matches!(outcome, Err(RunError::Run(_))) {
            // The context is lost; what it contains can't be freed through it.
            return Ok(());
        }
    }
    Ok(())
}

/// Runs the cases of files in order, in as many children as necessary. `arguments` start this program as a child.
pub fn run(arguments: &[String], paths: &[PathBuf], mut each: impl FnMut(usize, Outcome)) -> anyhow::Result<()> {
    let mut worker = None;
    for (index, path) in paths.iter().enumerate() {
        let current = match worker.take() {
            Some(current) => current,
            None => Worker::start(arguments)?,
        };
        let (outcome, current) = current.take(path)?;
        worker = current;
        each(index, outcome);
    }
    Ok(())
}

struct Worker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    fn start(arguments: &[String]) -> anyhow::Result<Worker> {
        let me = std::env::current_exe().context("failed to find this program")?;
        let mut child = Command::new(me)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start a child process")?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // The thread ends with the child's output.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, input, lines })
    }

    /// Runs one case; returns the worker too, unless it can't be used again.
    fn take(mut self, path: &Path) -> anyhow::Result<(Outcome, Option<Worker>)> {
        let sent = writeln!(self.input, "{}", path.display()).and_then(|()| self.input.flush());
        if sent.is_err() {
            return Ok((Outcome::Lost("the process ended"), None));
        }
        match self.lines.recv_timeout(CASE_WITHIN) {
            Ok(line) => {
                let outcome = parse(&line)?;
                let spent = matches!(outcome, Outcome::Failed(RunError::Run(_)));
                if spent {
                    self.child.wait().context("failed to wait for a child process")?;
                }
                Ok((outcome, (!spent).then_some(self)))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.child.wait().context("failed to wait for a child process")?;
                Ok((Outcome::Lost("the process ended"), None))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.child.kill().context("failed to end a child process")?;
                self.child.wait().context("failed to wait for a child process")?;
                Ok((Outcome::Lost("the kernel did not end"), None))
            }
        }
    }
}

fn parse(line: &str) -> anyhow::Result<Outcome> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match word {
        "ok" => {
            let words = rest.split_whitespace().map(|word| u64::from_str_radix(word, 16)).collect::<Result<_, _>>();
            Outcome::Ran(words.context("a child answered with something else than words")?)
        }
        "load" => Outcome::Failed(RunError::Load(rest.to_owned())),
        "run" => Outcome::Failed(RunError::Run(rest.parse().context("a child answered without a status")?)),
        _ => bail!("a child answered `{line}`"),
    })
}
