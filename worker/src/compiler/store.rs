//! The disk cache of compiled programs, so that a restarted worker need not compile them again.
//!
//! Each file contains one program. Its name is a hash of everything that the program depends on, including the source. So a request that
//! finds a file already has the source, and no user learns another user's source. Pools therefore share the folder, as they share the
//! compiler.
//!
//! | event | reaction |
//! | --- | --- |
//! | two workers write the same program | each writes a temporary file and renames it; both files are complete and equal |
//! | a file is truncated or damaged | its checksum, keyed with its name, does not match; the file is removed and the program compiled again |
//! | a worker dies while it writes | its temporary file is removed after [`REMAINS_KEPT`] |
//! | another user can write to the folder | the folder is not used |
//! | another user owns a file or can write to it | the file is not read |
//! | the folder exceeds its bound | one worker at a time, under a lock, evicts the least recently used files |
//! | a worker is suspended during an eviction | the others do not wait: the folder grows until the lock is free |

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, FileTimes, Metadata, OpenOptions, TryLockError},
    hash::{BuildHasher as _, RandomState},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use rustix::process::geteuid;

use super::Compiled;

/// The first bytes of a file. A new layout gets a new number, and programs in older files are compiled again.
const MAGIC: &[u8; 16] = b"gpufleet module2";
const CHECKSUM_BYTES: usize = blake3::OUT_LEN;
/// Maximum size of a file, in bytes: the largest answer of a compiler plus the file's header.
const FILE_BYTES_MAX: u64 = super::child::ANSWER_BYTES_MAX as u64 + (1 << 10);
const EXTENSION: &str = "module";
const TEMPORARY: &str = "tmp";
/// Age at which a temporary file is removed. Writing takes milliseconds, so its writer must be dead.
const REMAINS_KEPT: Duration = Duration::from_secs(3600);
/// Mode of the folder: closed to other users, because a compiled program reveals its source.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A folder of compiled programs.
#[derive(Debug)]
pub struct ProgramStore {
    folder: PathBuf,
    bytes_max: u64,
    /// A random part of the names of temporary files, because processes in other containers may have the same id.
    own: u64,
    written: AtomicU64,
}

/// Why a folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramStoreError {
    #[error("failed to use {folder} as a cache: {source}")]
    Io { folder: PathBuf, source: io::Error },
    #[error("failed to use {folder} as a cache: it is not a folder")]
    NoFolder { folder: PathBuf },
    #[error("failed to use {folder} as a cache: it belongs to user {owner}, but the worker runs as user {user}")]
    NotOurs { folder: PathBuf, owner: u32, user: u32 },
    #[error(
        "failed to use {folder} as a cache: other users can read or write it (mode {mode:o}); run `chmod {FOLDER_MODE:o} {folder}`"
    )]
    Open { folder: PathBuf, mode: u32 },
}

/// A file in the folder, for eviction.
struct Kept {
    path: PathBuf,
    bytes: u64,
}

impl ProgramStore {
    /// Opens a folder for at most `bytes_max` bytes of programs; creates it if it is missing.
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Self, ProgramStoreError> {
        let folder = folder.to_owned();
        let failed = |source| ProgramStoreError::Io { folder: folder.clone(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder).map_err(failed)?;
        let metadata = fs::symlink_metadata(&folder).map_err(failed)?;
        let (owner, user, mode) = (metadata.uid(), own_user(), metadata.mode() & 0o777);
        if !metadata.is_dir() {
            return Err(ProgramStoreError::NoFolder { folder });
        }
        if owner != user {
            return Err(ProgramStoreError::NotOurs { folder, owner, user });
        }
        if mode & !FOLDER_MODE != 0 {
            return Err(ProgramStoreError::Open { folder, mode });
        }
        Ok(Self { folder, bytes_max, own: RandomState::new().hash_one(()), written: AtomicU64::new(0) })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the program of this key if its file is complete, and marks it as used.
    pub fn get(&self, key: blake3::Hash) -> io::Result<Option<Compiled>> {
        let path = self.path(key);
        let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !is_ours(&metadata) {
            return Err(io::Error::other("the file belongs to another user"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(FILE_BYTES_MAX)).unwrap_or(0));
        (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        match decode(key, &bytes) {
            Some(compiled) => {
                mark_used(&file)?;
                Ok(Some(compiled))
            }
            None => {
                fs::remove_file(&path)?;
                Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum does not match"))
            }
        }
    }

    /// Writes a program, and evicts the least recently used ones if the folder exceeds its bound. A program that alone exceeds the bound is
    /// not written.
    pub fn put(&self, key: blake3::Hash, compiled: &Compiled) -> io::Result<()> {
        let bytes = encode(key, compiled)?;
        if bytes.len() as u64 > self.bytes_max {
            return Ok(());
        }
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!("{:016x}-{number}.{TEMPORARY}", self.own));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&temporary, self.path(key)));
        if let Err(error) = written {
            // If the file can't be removed now, a later eviction removes it.
            drop(fs::remove_file(&temporary));
            return Err(error);
        }
        self.drop_surplus()
    }

    /// Marks a program as used without reading it. Used for programs that were found in memory.
    pub fn touch(&self, key: blake3::Hash) -> io::Result<()> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(key));
        match opened.and_then(|file| mark_used(&file)) {
            // Another worker has evicted the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn path(&self, key: blake3::Hash) -> PathBuf {
        self.folder.join(key.to_hex().as_str()).with_extension(EXTENSION)
    }

    /// Evicts under a lock. Otherwise two workers could each evict enough for both of their files. If another worker has the lock, the
    /// surplus stays for now, because that worker may be suspended.
    fn drop_surplus(&self) -> io::Result<()> {
        let folder = File::open(&self.folder)?;
        match folder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let dropped = self.drop_oldest();
        // Unlock explicitly, because a child that is being started may hold a copy of the descriptor.
        folder.unlock()?;
        dropped
    }

    fn drop_oldest(&self) -> io::Result<()> {
        let (mut kept, mut bytes) = (BTreeMap::new(), 0);
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // The file may have been renamed in the meantime. It is then counted under its new name, now or by the next eviction.
            let Ok(metadata) = entry.metadata() else { continue };
            let used = metadata.modified()?;
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(EXTENSION) => {
                    bytes += metadata.len();
                    kept.insert((used, entry.file_name()), Kept { path, bytes: metadata.len() });
                }
                Some(TEMPORARY) if used.elapsed().is_ok_and(|age| age > REMAINS_KEPT) => remove(&path)?,
                _ => {}
            }
        }
        for Kept { path, bytes: freed } in kept.into_values() {
            if bytes <= self.bytes_max {
                break;
            }
            remove(&path)?;
            bytes -= freed;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn mark_used(file: &File) -> io::Result<()> {
    file.set_times(FileTimes::new().set_modified(SystemTime::now()))
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.uid() == own_user() && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

fn own_user() -> u32 {
    geteuid().as_raw()
}

/// The contents of a file after its checksum: PTX, cubin, log, compile time in microseconds, NVRTC's version, and symbols.
type Body<'a> = (&'a str, Option<&'a serde_bytes::Bytes>, &'a str, u64, &'a str, BTreeMap<&'a str, &'a str>);

fn encode(key: blake3::Hash, compiled: &Compiled) -> io::Result<Vec<u8>> {
    let cubin = compiled.cubin.as_deref().map(serde_bytes::Bytes::new);
    let symbols = compiled.symbols.iter().map(|(expression, symbol)| (expression.as_str(), symbol.as_str())).collect();
    let body: Body<'_> = (&compiled.ptx, cubin, &compiled.log, compiled.micros, &compiled.version, symbols);
    let body = rmp_serde::to_vec(&body).map_err(io::Error::other)?;
    Ok([MAGIC, checksum(key, &body).as_bytes().as_slice(), &body].concat())
}

fn decode(key: blake3::Hash, bytes: &[u8]) -> Option<Compiled> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (sum, body) = rest.split_at_checked(CHECKSUM_BYTES)?;
    if checksum(key, body) != *<&[u8; CHECKSUM_BYTES]>::try_from(sum).ok()? {
        return None;
    }
    let (ptx, cubin, log, micros, version, symbols): Body<'_> = rmp_serde::from_slice(body).ok()?;
    Some(Compiled {
        ptx: ptx.to_owned(),
        cubin: cubin.map(|cubin| cubin.to_vec()),
        log: log.to_owned(),
        micros,
        version: version.to_owned(),
        symbols: symbols.into_iter().map(|(expression, symbol)| (expression.to_owned(), symbol.to_owned())).collect(),
    })
}

/// Returns the checksum. It is keyed with the name, so that a file under another program's name does not match.
fn checksum(key: blake3::Hash, body: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(key.as_bytes(), body)
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
