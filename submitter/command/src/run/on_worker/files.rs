//! The files of a host program: packs what it needs, and unpacks what it brings back.

use std::{
    fs::File,
    io::Seek as _,
    path::{Path, PathBuf},
};

use gpufleet::{
    ArrayFile, Job,
    archive::{self, ArchiveError, IGNORE_FILE, Selection, Unpacked},
    schema::{Dtype, JobId},
};

use super::super::lines;
use crate::{
    complaint::{Complaint, chain},
    exit::Exit,
};

/// The files that came back.
#[derive(Debug)]
pub struct Saved {
    pub folder: PathBuf,
    pub unpacked: Unpacked,
    /// A file was in the way, so that a new folder has them.
    pub in_the_way: Option<PathBuf>,
}

/// Adds the files at these paths to the job. Returns how many there are, and the bytes of their archive.
pub fn upload(job: Job, paths: &[PathBuf]) -> Result<(Job, usize, u64), Complaint> {
    let selection = Selection::of(paths).map_err(|error| complaint(&error))?;
    let file = temporary()?;
    let mut file = selection.write(file).map_err(|error| complaint(&error))?;
    let bytes = file.stream_position().map_err(|error| temporary_failed(&error))?;
    let archive = ArrayFile::new(file, 0, Dtype::U8, vec![bytes]);
    let archive = archive.map_err(|error| Complaint::new(Exit::Internal, error.to_string()))?;
    Ok((job.upload_file(archive), selection.files(), bytes))
}

/// Unpacks the archive into the folder. If that would replace a file and may not, the files go to a new folder in it.
pub fn save(archive: &mut File, folder: &Path, replaces: bool, job_id: JobId) -> Result<Saved, Complaint> {
    let unpacked = match archive::unpack(archive, folder, replaces) {
        Err(ArchiveError::Exists { paths, .. }) => {
            let own = folder.join(format!("gpufleet-{}", lines::short(job_id)));
            let unpacked = archive::unpack(archive, &own, false).map_err(|error| complaint(&error))?;
            return Ok(Saved { folder: own, unpacked, in_the_way: paths.into_iter().next() });
        }
        unpacked => unpacked.map_err(|error| complaint(&error))?,
    };
    Ok(Saved { folder: folder.to_owned(), unpacked, in_the_way: None })
}

fn temporary() -> Result<File, Complaint> {
    tempfile::tempfile().map_err(|error| temporary_failed(&error))
}

fn temporary_failed(error: &std::io::Error) -> Complaint {
    Complaint::new(Exit::Internal, format!("failed to write a temporary file: {error}"))
        .hint("check that TMPDIR names a folder that you may write to, and that its disk has room")
}

/// The complaint about files that can't be packed or unpacked.
pub fn complaint(error: &ArchiveError) -> Complaint {
    let told = |exit| Complaint::new(exit, chain(error));
    match error {
        ArchiveError::Read { .. } => told(Exit::BadInput)
            .hint(format!("check the path of --upload and your permissions, or name the file in {IGNORE_FILE}")),
        ArchiveError::Changed { .. } => {
            told(Exit::BadInput).hint(format!("run the command again, or name the file in {IGNORE_FILE}"))
        }
        ArchiveError::SameName { .. } => told(Exit::BadInput).hint("give one of them another name"),
        ArchiveError::LinkOutside { .. } | ArchiveError::Special { .. } => {
            told(Exit::BadInput).hint(format!("name it in {IGNORE_FILE}, or upload the files that the program needs"))
        }
        ArchiveError::TooLarge { .. } => told(Exit::BadInput).hint(format!(
            "name what the program does not need in {IGNORE_FILE}, or put large data where the workers can read it"
        )),
        ArchiveError::IgnoreFile { .. } => told(Exit::BadInput).hint(format!("correct {IGNORE_FILE}")),
        ArchiveError::Exists { .. } => {
            told(Exit::BadInput).hint("choose another folder, or replace the files with --force")
        }
        ArchiveError::Write { .. } => {
            told(Exit::BadInput).hint("check that you may write there and that the disk has room")
        }
        ArchiveError::Archive { source } => temporary_failed(source),
        ArchiveError::Damaged { .. } | ArchiveError::Refused { .. } => {
            told(Exit::FleetFailed).hint("check that the worker and this command have the same version")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    fn archive(folder: &Path) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&Selection::of(&[folder.join(".")]).unwrap().write(Vec::new()).unwrap()).unwrap();
        file
    }

    #[test]
    fn a_file_in_the_way_sends_all_files_to_a_new_folder() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in [("a", "new"), ("b", "new")] {
            fs::write(from.path().join(name), text).unwrap();
        }
        fs::write(to.path().join("b"), "old").unwrap();
        let job_id = "0198f2c1-0b90-71cc-952e-7d6002819b6b".parse().unwrap();
        let saved = save(&mut archive(from.path()), to.path(), false, job_id).unwrap();
        assert_eq!(saved.folder, to.path().join("gpufleet-7d6002819b6b"));
        assert_eq!((saved.unpacked.written.len(), saved.in_the_way), (2, Some(PathBuf::from("b"))));
        assert_eq!(fs::read_to_string(to.path().join("b")).unwrap(), "old");
        let saved = save(&mut archive(from.path()), to.path(), true, job_id).unwrap();
        assert_eq!((saved.folder.as_path(), saved.in_the_way), (to.path(), None));
        assert_eq!(fs::read_to_string(to.path().join("b")).unwrap(), "new");
    }

    #[test]
    fn an_upload_that_does_not_exist_is_named() {
        let complaint = upload(Job::host(["true"], "plain"), &["no-such-folder".into()]).unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        assert!(complaint.message.starts_with("failed to read no-such-folder: "), "{}", complaint.message);
    }
}
