//! `@last`: the job that this user submitted last with `gpufleet submit` on this machine, in place of an id.
//!
//! The id is in a file of the user, because the ledger learns of a job only later, and of its user only from a worker.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use gpufleet::schema::JobId;

use super::{complaint::Complaint, exit::Exit};

/// The word for the last job.
pub const WORD: &str = "@last";

/// Notes a job as the last one. A user without a writable home has no last job, which is no reason to fail.
pub fn remember(job_id: JobId) {
    if let Some(file) = file() {
        write(&file, job_id).ok();
    }
}

/// The text, or the id of the last job in place of `@last`.
pub fn resolve(id: &str) -> Result<String, Complaint> {
    if id != WORD {
        return Ok(id.to_owned());
    }
    file().and_then(|file| read(&file)).map(|job_id| job_id.to_string()).ok_or_else(|| {
        Complaint::new(Exit::NotFound, format!("{WORD} names no job: this user has not submitted one on this machine"))
            .hint("give the id of a job; `gpufleet history` lists the jobs")
    })
}

/// `gpufleet/last-job` in the folder for state of the XDG base directory specification.
fn file() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("gpufleet/last-job"))
}

/// Replaces the file at once, because another command may be reading it.
fn write(file: &Path, job_id: JobId) -> io::Result<()> {
    let folder = file.parent().expect("the file is in a folder");
    fs::create_dir_all(folder)?;
    let written = folder.join(format!("last-job.{}", std::process::id()));
    fs::write(&written, format!("{job_id}\n"))?;
    fs::rename(&written, file)
}

fn read(file: &Path) -> Option<JobId> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_that_was_written_last_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/gpufleet/last-job");
        assert_eq!(read(&file), None);
        for job_id in [JobId::new(), JobId::new()] {
            write(&file, job_id).unwrap();
            assert_eq!(read(&file), Some(job_id));
        }
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn any_other_text_stays_as_it_is() {
        assert_eq!(resolve("0a1b2c3d4e5f").unwrap(), "0a1b2c3d4e5f");
    }
}
