//! Runs one program of the suite while others run.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{io::BufReader, net::unix::pipe, process::Command};

use super::{
    deadline,
    tally::Tally,
    watch::{self, Overdue},
};
use crate::{interrupt::Interrupted, workspace};

/// The deadline of a check. The examples in Rust documentation, and each check of the Python package, take a few minutes at most.
const CHECK_DEADLINE: Duration = Duration::from_secs(900);
/// How long to wait for a program's last lines. They are in the pipe when the program has ended.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Runs a test program to its end, or until one of its tests misses its deadline. Failed tests are added to the tally; an error means an
/// interruption or a program that can't run.
pub async fn tests(mut command: Command, program: &str, tally: &Tally) -> anyhow::Result<()> {
    let (reader, writer) = io::pipe().context("failed to make a pipe")?;
    let output = pipe::Receiver::from_owned_fd(reader.into()).context("failed to read from the pipe")?;
    let mut errors = tempfile::tempfile().context("failed to create a file for the output")?;
    command.args(watch::ARGUMENTS).env(watch::ALLOW_UNSTABLE.0, watch::ALLOW_UNSTABLE.1);
    command.stdout(writer).stderr(errors.try_clone().context("failed to share the file for the output")?);
    let (begun, failed_before) = (Instant::now(), tally.counts().failed.len());
    let mut printed = String::new();
    let mut passed = 0;
    let watched = watch::watch(
        BufReader::new(output),
        |test| deadline::of(program, test),
        |test| {
            passed += usize::from(test.outcome == watch::Outcome::Passed);
            tally.add(program, &test);
        },
        |line| printed.extend([line, "\n"]),
    );
    let (mut running, mut watched) = (Box::pin(workspace::run(command)), Box::pin(watched));
    let ended = tokio::select! {
        ended = &mut running => {
            // Processes that the program has started may keep the pipe open.
            tokio::time::timeout(LAST_LINES, &mut watched).await.ok();
            ended
        }
        Err(overdue) = &mut watched => {
            let what = match overdue {
                Overdue::Test { name, deadline } => {
                    format!("{program} {name}: still running after {} s", deadline.as_secs())
                }
                Overdue::Program { idle } => format!("{program}: no test ran for {} s", idle.as_secs()),
            };
            tally.fail(what);
            Ok(())
        }
    };
    // Ends their borrow of the counts that are read below.
    drop((running, watched));
    if let Err(error) = ended {
        if error.is::<Interrupted>() {
            return Err(error);
        }
        if tally.counts().failed.len() == failed_before {
            tally.fail(format!("{program}: {error:#}"));
        }
        eprintln!("{printed}{}", read(&mut errors)?);
    }
    eprintln!("      passed {:8.2} s  {program}: {passed} tests", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command that tests or checks something. Its output is shown as a whole at the end, because the outputs of concurrent commands
/// would be mixed.
pub async fn check(mut command: Command, tally: &Tally) -> anyhow::Result<()> {
    let program = Path::new(command.as_std().get_program()).file_name().unwrap_or_default().to_string_lossy();
    let what = format!("{program} {}", workspace::arguments(&command));
    let mut output = tempfile::tempfile().context("failed to create a file for the output")?;
    let handle = || output.try_clone().map(Stdio::from).context("failed to share the file for the output");
    command.stdout(handle()?).stderr(handle()?);
    let begun = Instant::now();
    let ended = tokio::time::timeout(CHECK_DEADLINE, workspace::run(command)).await;
    let text = read(&mut output)?;
    eprintln!("       ended {:8.2} s  {what}\n{text}", begun.elapsed().as_secs_f64());
    match ended {
        Ok(Ok(())) => tally.add_passed(passed(&text)),
        Ok(Err(error)) if error.is::<Interrupted>() => return Err(error),
        Ok(Err(error)) => tally.fail(format!("{what}: {error:#}")),
        Err(_) => tally.fail(format!("{what}: still running after {} s", CHECK_DEADLINE.as_secs())),
    }
    Ok(())
}

/// Returns the number of passed tests, from the closing lines of libtest and pytest.
fn passed(text: &str) -> usize {
    let closing = text.lines().filter(|line| line.starts_with("test result:") || line.starts_with("==="));
    let counted = |line: &str| line.split_once(" passed")?.0.rsplit(' ').next()?.parse::<usize>().ok();
    closing.filter_map(counted).sum()
}

fn read(file: &mut File) -> anyhow::Result<String> {
    file.rewind().context("failed to read the output")?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).context("failed to read the output")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted_by_the_closing_lines() {
        let libtest = "test a ... ok\ntest result: ok. 7 passed; 0 failed\n\ntest result: ok. 12 passed; 0 failed\n";
        assert_eq!(passed(libtest), 19);
        assert_eq!(
            passed("== 3 failed, 1679 passed in 61.03s (0:01:01) ==\n=== 1679 passed in 61 s ===\nx passed"),
            1679
        );
        assert_eq!(passed("Success: no issues found"), 0);
    }
}
