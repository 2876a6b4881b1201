//! The work folder of a program: its files, the archives that come and go, and the log.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{chown, fchown},
    path::PathBuf,
};

use rustix::process::{Gid, Uid};

use super::{GuardError, log::Log};
use crate::program::message::ProgramSpec;

/// The open files of a work folder. The program's view of the machine covers the folder itself.
#[derive(Debug)]
pub(super) struct WorkFolder {
    /// The folder of the program's files.
    pub(super) files: PathBuf,
    /// The archive to unpack, if the task has files.
    pub(super) upload: Option<File>,
    /// Where the files that come back are packed, if the task wants some.
    pub(super) archive: Option<File>,
    pub(super) log: Log,
    /// The output of the program. The init takes the writing end.
    pub(super) output: io::PipeReader,
    pub(super) output_writer: Option<io::PipeWriter>,
}

impl WorkFolder {
    /// Opens the work folder, and makes the folder of files for this user.
    pub(super) fn open(spec: &ProgramSpec, (user, group): (Uid, Gid)) -> Result<Self, GuardError> {
        let error = |what| move |source| GuardError::Folder { what, folder: spec.folder.display().to_string(), source };
        let folder = fs::canonicalize(&spec.folder).map_err(error("find the files"))?;
        let upload = match File::open(folder.join("upload.tar")) {
            Ok(file) => Some(file),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(error("open upload.tar")(source)),
        };
        let wants_files = !spec.download.is_empty();
        let archive = wants_files.then(|| File::create(folder.join("files.tar"))).transpose();
        let log = File::create(folder.join("log")).map_err(error("make log"))?;
        let files = folder.join("files");
        let (user, group) = (Some(user.as_raw()), Some(group.as_raw()));
        fs::create_dir(&files).and_then(|()| chown(&files, user, group)).map_err(error("make the folder of files"))?;
        let (output, output_writer) = io::pipe().map_err(error("make a pipe for the output"))?;
        // A program may open its output again, by the name /dev/stdout.
        fchown(&output_writer, user, group).map_err(error("pass on the pipe for the output"))?;
        Ok(Self {
            files,
            upload,
            archive: archive.map_err(error("make files.tar"))?,
            log: Log::new(log),
            output,
            output_writer: Some(output_writer),
        })
    }
}
