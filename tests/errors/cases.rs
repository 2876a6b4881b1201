//! Runs the commands of a text file one after the other.

use std::{fmt::Write as _, path::Path, process::Stdio};

use gpufleet_local::programs;
use gpufleet_tests::WAIT;
use regex::{Captures, Regex};
use tokio::process::Command;

/// The text. Lines that begin with `$` are commands; all others are copied.
pub struct Cases<'a>(&'a str);

/// Texts that differ between runs, and their replacements in the snapshot.
#[derive(Debug, Clone, Default)]
pub struct Masks(Vec<(String, String)>);

impl<'a> Cases<'a> {
    pub fn read(text: &'a str) -> Self {
        Self(text)
    }

    /// Runs the commands in a folder. `environment` applies to every command. As in a shell, a command may begin with further variables.
    pub async fn run(&self, folder: &Path, environment: &[(&str, &str)], masks: &Masks) -> String {
        let mut text = String::new();
        for line in self.0.lines() {
            writeln!(text, "{line}").unwrap();
            if let Some(line) = line.strip_prefix("$ ") {
                text.push_str(&masks.apply(&run(&masks.reveal(line), folder, environment).await));
            }
        }
        text
    }
}

async fn run(line: &str, folder: &Path, environment: &[(&str, &str)]) -> String {
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name.chars().all(is_of_variable));
    let variables = line.split_whitespace().take_while(is_variable).filter_map(|word| word.split_once('='));
    let mut words = line.split_whitespace().skip_while(is_variable);
    let program = words.next().expect("every line names a program");
    let mut command = Command::new(programs::ours(None, program).unwrap());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GPUFLEET_")) {
        command.env_remove(name);
    }
    // Logs are off, because they contain times. The state folder keeps the programs from finding a local fleet of the developer.
    command.env("GPUFLEET_LOG", "off").env("XDG_STATE_HOME", folder).env("COLUMNS", "100");
    command.envs(environment.iter().copied()).envs(variables);
    command.args(words).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    respect_permissions(&mut command);
    let output = tokio::time::timeout(WAIT, command.output()).await.expect("every command ends").unwrap();
    let code = output.status.code().expect("no signal ends it");
    format!("{}exit {code}\n", String::from_utf8(output.stderr).unwrap())
}

/// Drops the capability by which root ignores the permissions of files.
fn respect_permissions(command: &mut Command) {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    // SAFETY: between fork and exec, prctl is a system call without memory effects.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
            Ok(())
        })
    };
}

fn is_of_variable(letter: char) -> bool {
    letter.is_ascii_uppercase() || letter == '_'
}

impl Masks {
    /// Returns the mask for the emulated device, which is named after the processor.
    pub fn of_this_machine() -> Self {
        let processor = format!("(CPU, {})", std::env::consts::ARCH);
        Self::default().hiding("(CPU, AVX2)", "(CPU)").hiding(&processor, "(CPU)")
    }

    pub fn hiding(mut self, secret: &str, shown: &str) -> Self {
        self.0.push((secret.to_owned(), shown.to_owned()));
        self
    }

    fn apply(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, (secret, shown)| text.replace(secret, shown));
        without_measures(&without_ids(&text))
    }

    /// Replaces the masks in a line of the file by the actual texts.
    fn reveal(&self, line: &str) -> String {
        self.0.iter().fold(line.to_owned(), |line, (secret, shown)| line.replace(shown, secret))
    }
}

/// Masks measured times, the end of a quarantine, the name of the machine, and the positions of an endless kernel's threads.
fn without_measures(text: &str) -> String {
    let measures = [
        (r"waited \d+ ms", "waited <count> ms"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"\bben@[\w.-]+", "ben@<host>"),
        (r"(?s)    --> endless\.ptx:.*?, `[a-z0-9.]+`\nhint", "<where its threads were>\nhint"),
    ];
    let replace = |text: String, (pattern, shown)| Regex::new(pattern).unwrap().replace_all(&text, shown).into_owned();
    measures.into_iter().fold(text.to_owned(), replace)
}

/// Masks ids, addresses and the names of reply queues, which are new in each run.
fn without_ids(text: &str) -> String {
    let kinds = [
        (r"(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "<id>"),
        (r"(?i)^0x[0-9a-f]{12}$", "<address>"),
        (r"(?i)^(.*)-[0-9a-f]{16}$", "$1-<client>"),
    ];
    let kinds = kinds.map(|(pattern, shown)| (Regex::new(pattern).unwrap(), shown));
    // These ids are in the cases and in one hint, so they are not masked.
    let is_known = |word: &str| word.starts_with("0190") || word.starts_with("01990f3e");
    let mask = |word: &Captures<'_>| match kinds.iter().find(|(kind, _)| kind.is_match(&word[0])) {
        Some((kind, shown)) if !is_known(&word[0]) => kind.replace(&word[0], *shown).into_owned(),
        _ => word[0].to_owned(),
    };
    Regex::new("[0-9A-Za-z-]+").unwrap().replace_all(text, mask).into_owned()
}
