//! A small process that stops the processes of an ephemeral state directory after the owner has ended.
//!
//! The guard has its own session, so that neither Ctrl-C nor a closed terminal reaches it. It waits on a pipe whose
//! other end only the owner holds. The pipe closes whenever the owner ends: by a return, a panic or `kill -9`. Then the
//! guard sends a signal to every recorded process. It compares start times, because the kernel reuses process ids.
//! After a moment it kills the remaining processes, and every process with the directory's marker in its environment.
//! At the end it deletes the directory.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{error::LocalError, state::MARKER};

/// Time limit for the guard, which itself takes at most about five seconds.
const FINISH_WITHIN: Duration = Duration::from_secs(20);

/// The guard is a script for any POSIX shell, so that a test need not find one of gpufleet's programs.
const SCRIPT: &str = r#"
directory=$1 marker=$2
started() { # the start time of a process: a process id alone may have been used again
    stat=; read -r stat 2>/dev/null < "/proc/$1/stat" || return 1
    set -- ${stat##*) }
    case $1 in Z | X) return 1 ;; esac
    shift 19; echo "$1"
}
recorded() { # the recorded processes that still run, with the signal that ends each
    for record in "$directory"/processes/*; do
        pid=; read -r pid start signal 2>/dev/null < "$record" || continue
        [ "$(started "$pid")" = "$start" ] && echo "$pid $signal"
    done
}
marked() { grep -lzxF "$marker" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
while read -r _; do :; done
recorded | while read -r pid signal; do kill -s "$signal" "$pid"; kill -s CONT "$pid"; done 2>/dev/null
turns=30
while [ "$turns" -gt 0 ] && [ -n "$(recorded)" ]; do turns=$((turns - 1)); sleep 0.1; done
clean=0 turns=30
while [ "$turns" -gt 0 ] && [ "$clean" -lt 2 ]; do
    remaining="$(recorded | cut -d' ' -f1) $(marked)"
    case $remaining in *[0-9]*) clean=0; kill -s KILL $remaining 2>/dev/null ;; *) clean=$((clean + 1)) ;; esac
    turns=$((turns - 1)); sleep 0.1
done
rm -rf "$directory"
"#;

/// The owner's end of the pipe. Dropping it starts the guard's work without waiting for it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Starts a guard for `directory`.
    pub fn watch(directory: &Path) -> Result<Self, LocalError> {
        let marker = format!("{MARKER}={}", directory.display());
        let child = Command::new("setsid")
            .args(["/bin/sh", "-c", SCRIPT, "gpufleet-guard"])
            .arg(directory)
            .arg(marker)
            .env_remove(MARKER)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| LocalError::Spawn { name: "the guard".to_owned(), source })?;
        Ok(Self { child })
    }

    /// Closes the pipe and waits until the guard has finished. If the future is cancelled, the guard still does its
    /// work.
    pub async fn finish(mut self) -> Result<(), LocalError> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + FINISH_WITHIN;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(LocalError::WillNotDie { name: "the guard".to_owned(), pid: self.child.id() })
    }
}
