//! Runs a page's commands one after the other, as in one terminal: variables and the working folder carry over from block to block.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use gpufleet_local::{Signal, process::Group};
use gpufleet_tests::WAIT;
use tokio::process::{Child, Command};

/// How long to wait until a command has stopped. It is longer than the grace periods of gpufleet's programs.
const STOPS_WITHIN: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The beginning of every script. It exports every assigned variable, so that the next block has it. A background command records nothing,
/// because it may end while another block begins.
const PROLOGUE: &str = r#"set -aeu -o pipefail
trap : TERM
notes="$1"
if [ -e "$notes/variables" ]; then . "$notes/variables"; fi
if [ "$3" = in-front ]; then trap 'export -p > "$notes/variables"; pwd > "$notes/folder"' EXIT; fi
. "$2"
"#;

#[derive(Debug)]
pub struct Shell {
    /// The working folder of the first block.
    folder: PathBuf,
    /// The folder for scripts, outputs, and the variables and working folder of the last block.
    notes: PathBuf,
    environment: Vec<(String, String)>,
    running: Vec<BackgroundCommand>,
    blocks: usize,
}

/// A command that runs until the page ends.
#[derive(Debug)]
struct BackgroundCommand {
    line: usize,
    child: Child,
    group: Group,
    output: PathBuf,
}

/// The exit code of a block and its output, with both streams in order. If the block had to be killed, there is no code.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub output: String,
}

impl Shell {
    pub fn new(folder: PathBuf, notes: PathBuf, environment: Vec<(String, String)>) -> Self {
        Self { folder, notes, environment, running: Vec::new(), blocks: 0 }
    }

    /// Returns the current working folder.
    pub fn here(&self) -> PathBuf {
        let noted = fs::read_to_string(self.notes.join("folder"));
        noted.map_or_else(|_| self.folder.clone(), |folder| folder.trim_end().into())
    }

    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// Runs a block. Processes that it leaves in the background are killed.
    pub async fn run(&mut self, script: &str) -> Outcome {
        let (mut child, _group, output) = self.start(script, "in-front");
        let status = tokio::time::timeout(WAIT, child.wait()).await;
        let code = status.ok().and_then(|status| status.expect("the child was not waited for").code());
        Outcome { code, output: read(&output) }
    }

    /// Starts a command that runs until it is stopped, and waits until it prints this text.
    pub async fn run_until_stopped(&mut self, line: usize, script: &str, text: &str) -> Result<(), Outcome> {
        let (mut child, group, output) = self.start(script, "in-background");
        let deadline = tokio::time::Instant::now() + WAIT;
        while !read(&output).contains(text) {
            let ended = child.try_wait().expect("the child was not waited for");
            if ended.is_some() || tokio::time::Instant::now() > deadline {
                return Err(Outcome { code: ended.and_then(|status| status.code()), output: read(&output) });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.running.push(BackgroundCommand { line, child, group, output });
        Ok(())
    }

    /// Stops the commands in the background, the latest first. Returns those that failed.
    pub async fn stop(&mut self) -> Vec<(usize, Outcome)> {
        let mut bad = Vec::new();
        while let Some(mut running) = self.running.pop() {
            running.group.signal(Signal::Terminate);
            let status = tokio::time::timeout(STOPS_WITHIN, running.child.wait()).await;
            let code = status.ok().and_then(|status| status.expect("the child was not waited for").code());
            if code != Some(0) {
                bad.push((running.line, Outcome { code, output: read(&running.output) }));
            }
        }
        bad
    }

    fn start(&mut self, script: &str, place: &str) -> (Child, Group, PathBuf) {
        self.blocks += 1;
        let file = |kind: &str| self.notes.join(format!("{kind}-{}", self.blocks));
        let (script_file, output) = (file("script"), file("output"));
        fs::write(&script_file, script).expect("the page's notes can be written");
        let both = File::create(&output).expect("the page's notes can be written");
        let mut command = Command::new("bash");
        command.args(["-c", PROLOGUE, "bash"]).args([&self.notes, &script_file]).arg(place);
        command.current_dir(self.here());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GPUFLEET_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(both.try_clone().expect("a file can be shared")).stderr(both);
        let child = command.process_group(0).kill_on_drop(true).spawn().expect("bash is installed");
        let group = Group::led_by(child.id().expect("the child was not waited for"));
        (child, group, output)
    }
}

fn read(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned()
}
