//! The files of a host program: the folder that it works in, what goes there before it starts, and what comes back.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{
    Buffer, Data, Dtype, Failure, FailureCode, Inline, KeptData, KeptOutput, KeptOutputs, LargeOutputs, Output,
    OutputData, Size, Task, Verdict,
    bounds::{BLOB_BYTES_MIN, KEPT_INLINE_BYTES_MAX, MESSAGE_BYTES_MAX},
    host_program::{FILES, LOG},
};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::{arrays::JobOutput, clock::unix_ms};
use crate::{
    blobs,
    disposition::Ending,
    executor::{CudaSpec, emulator_library},
    program::{Cgroup, Cgroups, ProgramLimits},
};

const PREFIX: &str = "gpufleet-program-";
/// The name under which programs load the driver.
const DRIVER: &str = "libcuda.so.1";
/// Maximum bytes of all that comes back in a reply.
const REPLY_FILES_BYTES_MAX: u64 = 12 << 20;

/// The file in a program's folder that its worker holds locked.
const LOCK: &str = "lock";

/// The folder of one program, and its cgroup. Dropping it removes both.
#[derive(Debug)]
pub(super) struct ProgramFolder {
    /// The cgroup has the name of the folder, so that a later worker finds it.
    cgroup: Option<Cgroup>,
    folder: TempDir,
    _lock: File,
}

/// What a program left in its folder, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// The archive of the files that come back, if it brings some.
    pub(super) files: Option<u64>,
    /// The log, if the outcome has only its end.
    pub(super) log: Option<u64>,
}

impl ProgramFolder {
    /// Creates a folder that only this worker's user can enter, with the files of the task.
    pub(super) async fn create(parent: &Path, task: &Task<'_>, store: Option<&BlobStore>) -> Result<Self, Ending> {
        let parent = parent.to_owned();
        let created = blocking(move || {
            let private = fs::Permissions::from_mode(0o700);
            let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(&parent)?;
            let lock = File::create(folder.path().join(LOCK))?;
            lock.lock()?;
            Ok(Self { cgroup: None, folder, _lock: lock })
        });
        let folder = created.await.map_err(|error| lost("create the program's folder", &error))?;
        if let Some(upload) = task.buffers.first() {
            folder.write_upload(upload, store).await?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the program's cgroup.
    pub(super) fn limit(&mut self, cgroups: &Arc<Cgroups>, limits: ProgramLimits) -> Result<(), Ending> {
        let name = self.path().file_name().unwrap_or_default().to_string_lossy();
        let made =
            cgroups.create(&name, limits).map_err(|error| lost("limit the program's memory and processes", &error))?;
        self.cgroup = Some(made);
        Ok(())
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    async fn write_upload(&self, upload: &Buffer<'_>, store: Option<&BlobStore>) -> Result<(), Ending> {
        let path = self.path().join("upload.tar");
        let failed = |error: &io::Error| lost("write the program's files", error);
        let file = File::create(&path).map_err(|error| failed(&error))?;
        if let Some((digest, bytes)) = upload.blob() {
            let store = store.expect("a worker without a store has passed the job on");
            let read = Box::pin(store.read_into(digest, bytes, file)).await;
            return read.map(drop).map_err(|error| blobs::ending(blobs::failure(&error)));
        }
        let Data::Inline(Inline::Bytes(bytes)) = &upload.data else {
            let problem = "buffers: the archive of a host program is bytes, in the message or in a blob".to_owned();
            return Err(Ending::Failed(Failure::new(Verdict::User, FailureCode::InvalidTask, problem)));
        };
        let bytes = bytes.to_vec();
        blocking(move || (&file).write_all(&bytes)).await.map_err(|error| failed(&error))
    }

    /// Returns the folder from which the program loads its driver, unless that is the system's. It has a copy, because the program may not
    /// read the folder of the worker's own programs.
    pub(super) async fn driver(&self, cuda: &CudaSpec, is_emulated: bool) -> Result<Option<PathBuf>, Ending> {
        let library = match cuda {
            CudaSpec::Path(path) => Some(path.clone()),
            CudaSpec::System => None,
            CudaSpec::Emulated | CudaSpec::Auto => emulator_library().filter(|_| is_emulated),
        };
        let Some(library) = library else { return Ok(None) };
        let folder = self.path().join("driver");
        let to = folder.clone();
        let copied = blocking(move || {
            fs::create_dir(&to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
            fs::copy(&library, to.join(DRIVER)).map(drop)
        });
        copied.await.map_err(|error| lost("copy the driver for the program", &error))?;
        Ok(Some(folder))
    }

    /// Returns what comes back as outputs, in the blob store if it is large and the task allows that, and what the ledger keeps.
    pub(super) async fn outputs(
        &self,
        left: Left,
        task: &Task<'_>,
        store: Option<&BlobStore>,
    ) -> Result<(Vec<JobOutput>, Option<KeptOutputs>), Failure> {
        let store = store.filter(|_| task.large_outputs == LargeOutputs::Blob);
        let mut outputs = Vec::new();
        for (name, file, bytes) in [(FILES, "files.tar", left.files), (LOG, "log", left.log)] {
            let Some(bytes) = bytes else { continue };
            let path = self.path().join(file);
            outputs.push(match store {
                Some(store) if bytes >= BLOB_BYTES_MIN || (task.keep_ms.is_some() && bytes > KEPT_INLINE_BYTES_MAX) => {
                    stored(store, name, &path, bytes).await?
                }
                _ => inline(name, &path, bytes).await?,
            });
        }
        let inline_bytes: u64 = outputs.iter().map(|output| output.inline_bytes() as u64).sum();
        if inline_bytes > REPLY_FILES_BYTES_MAX {
            return Err(too_large(inline_bytes));
        }
        let kept = task.keep_ms.map(|keep_ms| kept(&outputs, keep_ms)).transpose()?;
        Ok((outputs, kept))
    }

    /// Removes the folder with everything in it.
    pub(super) async fn remove(self) {
        let path = self.path().to_owned();
        if let Err(error) = blocking(move || self.folder.close()).await {
            warn!(path = %path.display(), %error, "folder of a host program not removed");
        }
    }
}

/// Removes the folders and cgroups of programs whose workers have been killed. A worker holds a lock in each of its folders.
pub(super) fn remove_left_behind(parent: &Path, cgroups: Option<&Cgroups>) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let is_free = File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_free {
            cgroups.iter().for_each(|cgroups| cgroups.remove(&entry.file_name().to_string_lossy()));
            match fs::remove_dir_all(&path) {
                Ok(()) => info!(path = %path.display(), "folder of a host program of an earlier worker removed"),
                Err(error) => warn!(path = %path.display(), %error, "folder of a host program not removed"),
            }
        }
    }
    Ok(())
}

async fn stored(store: &BlobStore, name: &str, path: &Path, bytes: u64) -> Result<JobOutput, Failure> {
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let digest = Box::pin(store.put_file(file, 0..bytes)).await.map_err(|error| blobs::failure(&error))?;
    Ok(JobOutput::Stored(output(name, bytes, OutputData::Blob(digest)), bytes))
}

async fn inline(name: &str, path: &Path, bytes: u64) -> Result<JobOutput, Failure> {
    if bytes > REPLY_FILES_BYTES_MAX {
        return Err(too_large(bytes));
    }
    let path = path.to_owned();
    let content = blocking(move || fs::read(&path)).await.map_err(|error| unreadable(&error))?;
    let length = content.len() as u64;
    Ok(JobOutput::Copied(output(name, length, OutputData::Inline(Inline::from(content)))))
}

fn output(name: &str, bytes: u64, data: OutputData<'static>) -> Output<'static> {
    Output { name: name.to_owned(), dtype: Dtype::U8, shape: vec![bytes], data }
}

fn kept(outputs: &[JobOutput], keep_ms: u64) -> Result<KeptOutputs, Failure> {
    let keep = |output: &JobOutput| {
        let Output { name, dtype, shape, data } = output.as_output();
        let data = match data {
            OutputData::Blob(digest) => KeptData::Blob(digest),
            OutputData::Inline(Inline::Bytes(bytes)) if bytes.len() as u64 <= KEPT_INLINE_BYTES_MAX => {
                KeptData::Inline(bytes.to_vec())
            }
            OutputData::Inline(_) => return Err(too_large(output.inline_bytes() as u64)),
        };
        Ok(KeptOutput { name, dtype, shape, data })
    };
    let outputs = outputs.iter().map(keep).collect::<Result<_, _>>()?;
    Ok(KeptOutputs { expires_ms: unix_ms().saturating_add_unsigned(keep_ms), outputs })
}

fn too_large(bytes: u64) -> Failure {
    let message = format!(
        "the program's files and output take {}, but without a blob store a reply carries at most {} and the ledger keeps at most {}; \
         give the client and the worker the same blob store (--blobs), or bring back less",
        Size(bytes),
        Size(REPLY_FILES_BYTES_MAX.min(MESSAGE_BYTES_MAX as u64)),
        Size(KEPT_INLINE_BYTES_MAX)
    );
    Failure::new(Verdict::User, FailureCode::OutputTooLarge, message)
}

fn unreadable(error: &io::Error) -> Failure {
    let message = format!("the worker failed to read what the program left: {error}");
    Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)
}

/// The program did not start, so another attempt may.
fn lost(what: &str, error: &io::Error) -> Ending {
    Ending::Lost { reason: format!("the worker failed to {what}: {error}"), suspect: false }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{HostProgram, Program};

    use super::*;

    fn task() -> Task<'static> {
        Task::new(Program::Host(HostProgram {
            command: vec!["true".to_owned()],
            environment: Some("e".to_owned()),
            image: None,
            variables: std::collections::BTreeMap::new(),
            download: Vec::new(),
            network: false,
        }))
    }

    #[tokio::test]
    async fn what_a_killed_worker_left_is_removed_and_what_is_in_use_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let Ok(used) = ProgramFolder::create(parent.path(), &task(), None).await else { panic!("a folder is created") };
        let left = parent.path().join("gpufleet-program-left");
        fs::create_dir(&left).unwrap();
        File::create(left.join(LOCK)).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        remove_left_behind(parent.path(), None).unwrap();
        assert!(used.path().exists() && !left.exists() && parent.path().join("other").exists());
        let path = used.path().to_owned();
        used.remove().await;
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn small_files_come_back_in_the_reply_and_large_ones_need_a_store() {
        let parent = tempfile::tempdir().unwrap();
        let Ok(folder) = ProgramFolder::create(parent.path(), &task(), None).await else {
            panic!("a folder is created")
        };
        fs::write(folder.path().join("files.tar"), b"tar").unwrap();
        let left = Left { files: Some(3), log: None };
        let (outputs, kept) = folder.outputs(left, &task(), None).await.unwrap();
        assert_eq!((outputs.len(), outputs[0].bytes(), kept), (1, 3, None));
        let left = Left { files: Some(REPLY_FILES_BYTES_MAX + 1), log: None };
        let refused = folder.outputs(left, &task(), None).await.unwrap_err();
        assert!(refused.code == FailureCode::OutputTooLarge && refused.message.contains("--blobs"), "{refused:?}");
        let store = BlobStore::open(gpufleet_blobs::BlobLocation::memory()).await.unwrap();
        let kept = Task { large_outputs: LargeOutputs::Blob, keep_ms: Some(1000), ..task() };
        let long = vec![b'x'; usize::try_from(KEPT_INLINE_BYTES_MAX).unwrap() + 1];
        fs::write(folder.path().join("log"), &long).unwrap();
        let left = Left { files: Some(3), log: Some(long.len() as u64) };
        let (outputs, kept) = folder.outputs(left, &kept, Some(&store)).await.unwrap();
        let kept = kept.unwrap();
        assert!(matches!(&outputs[1], JobOutput::Stored(..)), "{outputs:?}");
        assert!(matches!(kept.outputs[0].data, KeptData::Inline(_)), "{kept:?}");
        let KeptData::Blob(digest) = kept.outputs[1].data else { panic!("{kept:?}") };
        assert_eq!(store.read(digest, long.len() as u64).await.unwrap(), long);
    }
}
