//! Cases in child processes. A fault spoils a process's CUDA context for good, a driver may crash, a kernel may never
//! end: each costs one case, and the rest goes on in another child.
//!
//! A child takes paths of case files on its input, one a line, and answers each with one line: `ok` and the words of
//! `out`, `load` and a message, or `run` and a status, after which it ends.

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

/// One case takes milliseconds, on a busy machine a second; a kernel that takes this long never ends.
const CASE_WITHIN: Duration = Duration::from_secs(60);

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ran(Vec<u64>),
    Failed(RunError),
    /// The process ended without a word, or did not end.
    Lost(&'static str),
}

/// The life of a child: the arguments that started it name the driver.
pub fn serve(driver: &Driver) -> anyhow::Result<()> {
    for line in io::stdin().lines() {
        let path = line.context("read from the parent")?;
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
        .context("answer the parent")?;
        if matches!(outcome, Err(RunError::Run(_))) {
            // The context is lost; what it holds is not given back through it.
            return Ok(());
        }
    }
    Ok(())
}

/// Runs the cases of files, in order, in as many children as it takes. `arguments` make this program a child.
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
        let me = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(me)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a child process")?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // Ends with the child's output.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, input, lines })
    }

    /// Runs one case; the worker comes back unless it is spent.
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
                    self.child.wait().context("wait for a child process")?;
                }
                Ok((outcome, (!spent).then_some(self)))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.child.wait().context("wait for a child process")?;
                Ok((Outcome::Lost("the process ended"), None))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.child.kill().context("end a child process")?;
                self.child.wait().context("wait for a child process")?;
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
