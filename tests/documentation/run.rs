//! Runs the blocks of a page.

use std::{fs, time::Duration};

use tokio::time::Instant;

use crate::{
    checked,
    ground::{Ground, Place, root},
    mark::Mark,
    output::fits,
    page::{Block, Page},
    parsed,
    report::{Fault, Report},
    shell::Outcome,
};

/// How long a command that only reads is repeated. The recorder may be a moment behind a reply, and dead-lettering a
/// job takes time.
const RECORDED_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Commands that only read, which are repeated until they print the expected output.
const READERS: [&str; 10] = [
    "gpufleet history",
    "gpufleet show",
    "gpufleet logs",
    "gpufleet workers",
    "gpufleet dead list",
    "gpufleet stats",
    "gpufleet usage",
    "gpufleet pools",
    "gpufleet report",
    "gpufleet why",
];

/// Programs that would change the machine. A block that uses one must have a mark.
const FORBIDDEN: [&str; 8] =
    ["rabbitmq-diagnostics", "cargo", "docker", "rabbitmqctl", "sudo", "apt-get", "systemctl", "kubectl"];

struct Run<'a> {
    ground: &'a Ground,
    page: &'a Page,
    place: Place,
    report: Report,
}

pub async fn run(ground: &Ground, page: &Page) -> Report {
    let mut run = Run { ground, page, place: ground.place(page), report: Report::of(page.blocks.len()) };
    let mut index = 0;
    while let Some(block) = page.blocks.get(index) {
        let printed = if block.is_run() && block.language != "console" { page.printed_by(index) } else { None };
        match &page.not_executed {
            Some(reason) => run.report.not_executed(reason),
            None => run.block(block, printed).await,
        }
        index += if printed.is_some() && page.not_executed.is_none() { 2 } else { 1 };
    }
    for (line, outcome) in run.place.stop().await {
        run.report.faults.push(fault(page, line, &format!("the command was stopped, and {}", ended(&outcome))));
    }
    run.report
}

impl Run<'_> {
    async fn block(&mut self, block: &Block, printed: Option<&Block>) {
        let done = match (&block.mark, block.language.as_str()) {
            (Some(Mark::NotExecuted(reason)), _) => return self.report.not_executed(reason),
            (Some(Mark::File(name)), _) => self.file(block, name).map(|()| "files that a command uses"),
            (Some(Mark::CopyOf(path)), _) => {
                parsed::copy(&block.text, path, root()).map(|()| "copies of files in the repository")
            }
            (Some(Mark::RunsUntilStopped(text)), "sh") => {
                self.background(block, text).await.map(|()| "blocks of commands executed")
            }
            (_, "sh" | "bash") => self
                .command(block, &block.text, block.exit_code(), printed)
                .await
                .map(|()| "blocks of commands executed"),
            (_, "python") => self.script(block, "python3", printed).await.map(|()| "programs executed"),
            (_, "sql") => self
                .script(block, "psql -q -v ON_ERROR_STOP=1 \"$GPUFLEET_DATABASE_URL\" -f", printed)
                .await
                .map(|()| "queries executed"),
            (_, "console") => self.console(block).await.map(|()| "blocks of commands executed"),
            (Some(Mark::Type(name)), "json") => {
                parsed::json(&block.text, name).map(|()| "JSON read as the type it shows")
            }
            (_, "log") => parsed::log(&block.text, root()).map(|()| "logs whose messages the programs write"),
            (_, "toml") => parsed::toml(&block.text).map(|()| "TOML and YAML parsed"),
            (_, "yaml") => checked::yaml(&self.place.shell.here(), &block.text).await.map(|()| "TOML and YAML parsed"),
            (_, "ini") => checked::unit(&self.place.shell.here(), &block.text).await.map(|()| "systemd units verified"),
            (_, "rust") => parsed::rust(&self.page.path, root()).map(|()| "Rust compiled by doctests"),
            (_, language) => Err(format!(
                "a `{language}` block is neither a command nor its output: write `<!-- not executed: REASON -->` or another \
                 mark before it (CONTRIBUTING.md, \"Examples\")"
            )),
        };
        match done {
            Ok(what) => self.report.count(what),
            Err(what) => self.report.faults.push(fault(self.page, block.line, &what)),
        }
    }

    fn file(&self, block: &Block, name: &str) -> Result<(), String> {
        let later = self.page.blocks.iter().filter(|other| other.line > block.line);
        if !later.filter(|other| other.is_run()).any(|other| other.text.contains(name)) {
            return Err(format!("no later command of the page uses the file {name}"));
        }
        let path = self.place.shell.here().join(name);
        fs::write(&path, &block.text).map_err(|error| format!("failed to write {name}: {error}"))
    }

    async fn background(&mut self, block: &Block, text: &str) -> Result<(), String> {
        allowed(&block.text)?;
        self.start_fleet(block).await?;
        let started = self.place.shell.run_until_stopped(block.line, &block.text, text).await;
        started.map_err(|outcome| format!("the command was to print \"{text}\" and go on, but {}", ended(&outcome)))
    }

    async fn command(
        &mut self,
        block: &Block,
        command: &str,
        expected_code: i32,
        printed: Option<&Block>,
    ) -> Result<(), String> {
        allowed(command)?;
        self.start_fleet(block).await?;
        let deadline = Instant::now() + RECORDED_WITHIN;
        loop {
            let outcome = self.place.shell.run(command).await;
            let problem = problem(&outcome, expected_code, printed).or_else(|| waits_too_often(block, &outcome));
            let Some(problem) = problem else { break };
            if self.page.is_literal() || !only_reads(command) || Instant::now() > deadline {
                return Err(format!("{problem}\n  command:\n{}", indented(command)));
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
        if printed.is_some() {
            self.report.count("outputs compared");
        }
        Ok(())
    }

    /// Runs the commands after `$ ` and compares the output below each of them. The expected exit code applies to the
    /// last command.
    async fn console(&mut self, block: &Block) -> Result<(), String> {
        let commands = console_commands(&block.text);
        for (index, (command, shown)) in commands.iter().enumerate() {
            let code = if index + 1 == commands.len() { block.exit_code() } else { 0 };
            self.command(block, command, code, Some(&block.output(shown))).await?;
        }
        if commands.is_empty() { Err("no line of the block starts with `$ `".to_owned()) } else { Ok(()) }
    }

    async fn script(&mut self, block: &Block, program: &str, printed: Option<&Block>) -> Result<(), String> {
        let name = format!("block-{}", block.line);
        fs::write(self.place.shell.here().join(&name), &block.text).map_err(|error| error.to_string())?;
        if !self.page.is_literal() {
            self.place.start_fleet(self.ground).await;
        }
        self.command(block, &format!("{program} {name}"), block.exit_code(), printed).await
    }

    async fn start_fleet(&mut self, block: &Block) -> Result<(), String> {
        if self.page.is_literal() {
            return match self.page.starts_fleet() {
                true => Ok(()),
                false => Err("this page is followed to the letter: start a fleet with `gpufleet local up`".to_owned()),
            };
        }
        if block.text.contains("gpufleet") || block.text.contains("$GPUFLEET_") {
            self.place.start_fleet(self.ground).await;
        }
        Ok(())
    }
}

fn problem(outcome: &Outcome, expected_code: i32, printed: Option<&Block>) -> Option<String> {
    if outcome.code != Some(expected_code) {
        return Some(format!("expected exit code {expected_code}, but the command {}", ended(outcome)));
    }
    let printed = printed.filter(|printed| !fits(&printed.text, &outcome.output, &printed.language))?;
    Some(format!(
        "the output differs from line {} of the page\n  expected:\n{}\n  got:\n{}",
        printed.line,
        indented(&printed.text),
        indented(&outcome.output)
    ))
}

/// Checks how often a program waited for its session, as the last line of `gpufleet run` says.
fn waits_too_often(block: &Block, outcome: &Outcome) -> Option<String> {
    let Some(Mark::WaitsAtMost(most)) = block.mark else { return None };
    let waits = outcome.output.split(", ").find_map(|part| part.strip_suffix(" waits")?.parse::<u64>().ok());
    match waits {
        Some(waits) if waits <= most => None,
        Some(waits) => Some(format!("the program may wait {most} times for its session, but waited {waits} times")),
        None => Some(format!("the output does not say how often the program waited:\n{}", indented(&outcome.output))),
    }
}

fn ended(outcome: &Outcome) -> String {
    let how =
        outcome.code.map_or_else(|| "did not end in time".to_owned(), |code| format!("ended with exit code {code}"));
    format!("{how}; its output:\n{}", indented(&outcome.output))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn fault(page: &Page, line: usize, what: &str) -> Fault {
    Fault { page: page.path.clone(), line, what: what.to_owned() }
}

fn allowed(command: &str) -> Result<(), String> {
    let refuse = |program| Err(format!("{program} would change this machine: mark the block as not executed"));
    forbidden(command).map_or(Ok(()), refuse)
}

fn forbidden(command: &str) -> Option<&'static str> {
    let words = |line: &str| {
        line.split(|c: char| c.is_whitespace() || "|&;()".contains(c)).any(|word| FORBIDDEN.contains(&word))
    };
    let line = command.lines().find(|line| !line.trim_start().starts_with('#') && words(line))?;
    FORBIDDEN.into_iter().find(|program| line.contains(program))
}

fn only_reads(command: &str) -> bool {
    let joined = command.replace("\\\n", " ");
    let mut lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.all(|line| READERS.iter().any(|reader| line.starts_with(reader)))
}

fn console_commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let line = format!("{line}\n");
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((command, _))) if continues => command.push_str(&line),
            (None, Some((_, shown))) => shown.push_str(&line),
            (None, None) => {}
        }
        let in_command = commands.last().is_some_and(|(_, shown)| shown.is_empty());
        continues = in_command && line.ends_with("\\\n");
    }
    commands
}

#[test]
fn a_console_block_consists_of_commands_with_their_outputs() {
    let commands = console_commands("$ one \\\n    two\nout\n\nput\\\nmore\n$ three\n");
    let one = ("one \\\n    two\n".to_owned(), "out\n\nput\\\nmore\n".to_owned());
    assert_eq!(commands, [one, ("three\n".to_owned(), String::new())]);
}

#[test]
fn only_commands_that_read_are_run_again() {
    assert!(only_reads("# look\ngpufleet history \\\n    --since 2h\ngpufleet show $id\n"));
    assert!(!only_reads("gpufleet history\ngpufleet retry --all\n"));
}
