//! The logs of a fleet's processes.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::{
    error::{FileContext as _, LocalError},
    state::StateDir,
};

const EXTENSION: &str = "log";
/// Bytes of a log's end that are read first. They are doubled until they have enough lines.
const WINDOW: u64 = 16 << 10;
/// Maximum bytes that are read of a log, because logs can be large.
const WINDOW_MAX: u64 = 4 << 20;

/// The log of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The name of the process.
    pub process: String,
    pub path: PathBuf,
}

impl Log {
    /// The last lines that are not blank. Fewer if they are longer than a few mebibytes.
    pub fn last_lines(&self, count: usize) -> Result<Vec<String>, LocalError> {
        last_lines(&self.path, count).at("read", &self.path)
    }
}

/// The logs in the state directory, by name. They stay when the fleet is stopped. Changes nothing.
pub fn logs(dir: &Path) -> Result<Vec<Log>, LocalError> {
    let Some(state) = StateDir::existing(dir)? else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    for entry in fs::read_dir(state.logs()).at("list", state.logs())? {
        let path = entry.at("list", state.logs())?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(name) = path.file_stem()
        {
            logs.push(Log { process: name.to_string_lossy().into_owned(), path });
        }
    }
    logs.sort_by(|one, other| one.process.cmp(&other.process));
    Ok(logs)
}

/// The last lines of a file that are not blank.
pub(crate) fn last_lines(path: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut window = WINDOW;
    loop {
        let start = length.saturating_sub(window);
        let lines = lines_from(&mut file, start)?;
        if start == 0 || lines.len() >= count || window >= WINDOW_MAX {
            let skipped = lines.len().saturating_sub(count);
            return Ok(lines.into_iter().skip(skipped).collect());
        }
        window *= 2;
    }
}

/// The lines from this offset on. The first one may have begun before it, and is left out.
fn lines_from(file: &mut fs::File, start: u64) -> io::Result<Vec<String>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(WINDOW_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = match text.split_once('\n') {
        Some((_, whole)) if start > 0 => whole,
        _ => &text,
    };
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_in_short_and_in_long_logs() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |number: u32| format!("line {number} {}", "x".repeat(100));
        fs::write(file.path(), (0..1000).map(|number| line(number) + "\n\n").collect::<String>()).unwrap();
        for count in [1, 2, 500, 1000] {
            let expected: Vec<String> = (1000 - count..1000).map(line).collect();
            assert_eq!(last_lines(file.path(), count as usize).unwrap(), expected, "{count} lines");
        }
        assert_eq!(last_lines(file.path(), 2000).unwrap().len(), 1000);
    }

    #[test]
    fn the_logs_of_a_fleet_are_listed_by_the_names_of_its_processes() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("fleet");
        assert_eq!(logs(&dir).unwrap(), []);
        let state = StateDir::persistent(&dir).unwrap();
        for name in ["gpufleet-w1", "broker"] {
            fs::write(state.log(name), "text\n").unwrap();
        }
        fs::write(state.logs().join("notes.txt"), "").unwrap();
        let names: Vec<String> = logs(&dir).unwrap().into_iter().map(|log| log.process).collect();
        assert_eq!(names, ["broker", "gpufleet-w1"]);
    }
}
