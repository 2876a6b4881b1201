//! Computes a fingerprint of the CUDA toolkit, so that programs on disk from one toolkit are not used with another.
//!
//! The compiler's version alone is not enough: headers come in separate packages, and programs depend on them.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::headers::HEADERS;

/// Maximum number of files in a toolkit; a toolkit has some thousands of headers.
const FILES_MAX: usize = 100_000;

/// The compiler that a child has loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// The library and its builtins.
    pub files: Vec<PathBuf>,
    pub version: String,
}

/// Returns a hash of the compiler, of all headers that it can include, and of the worker's own headers. It covers the
/// names, sizes and times of the files. An upgrade changes those, and reading all files would take as long as
/// compiling.
pub(super) fn fingerprint(loaded: &Loaded, includes: &[PathBuf], strict: bool) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(env!("CARGO_PKG_VERSION").as_bytes());
    part(loaded.version.as_bytes());
    for (name, text) in HEADERS {
        part(name.as_bytes());
        part(text.as_bytes());
    }
    // A strict worker must not use a program that was compiled without a complete sandbox.
    part(&[u8::from(strict)]);
    for file in &loaded.files {
        part(&described(file)?);
    }
    for include in includes {
        part(include.as_os_str().as_encoded_bytes());
        for file in below(include)? {
            part(&described(&file)?);
        }
    }
    Ok(hasher.finalize())
}

/// Returns every file below a folder, in order.
fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    // The folder itself may be a link. Links inside it are not followed.
    let mut folders = vec![folder.canonicalize()?];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { &mut folders } else { &mut files }.push(entry.path());
        }
        if files.len() + folders.len() > FILES_MAX {
            return Err(io::Error::other(format!("{} holds more than {FILES_MAX} files", folder.display())));
        }
    }
    files.sort();
    Ok(files)
}

fn described(file: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(file).or_else(|_| fs::symlink_metadata(file))?;
    let path = file.as_os_str().as_encoded_bytes();
    let [size, seconds, nanoseconds] =
        [metadata.size(), metadata.mtime().cast_unsigned(), metadata.mtime_nsec().cast_unsigned()]
            .map(u64::to_le_bytes);
    Ok([path, &size, &seconds, &nanoseconds].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_changes_the_code_changes_the_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let (library, include) = (folder.path().join("libnvrtc.so"), folder.path().join("include"));
        fs::create_dir_all(include.join("cuda/std")).unwrap();
        let header = include.join("cuda/std/limits");
        fs::write(&library, "code").unwrap();
        fs::write(&header, "int x;").unwrap();
        let loaded = Loaded { files: vec![library.clone()], version: "12.9".to_owned() };
        let of = |loaded: &Loaded, strict| fingerprint(loaded, std::slice::from_ref(&include), strict).unwrap();
        let first = of(&loaded, false);
        assert_eq!(first, of(&loaded, false));
        assert_ne!(first, of(&loaded, true));
        assert_ne!(first, of(&Loaded { version: "12.8".to_owned(), ..loaded.clone() }, false));
        fs::write(&header, "int xy;").unwrap();
        let second = of(&loaded, false);
        assert_ne!(first, second);
        fs::write(include.join("new.h"), "").unwrap();
        let third = of(&loaded, false);
        assert_ne!(second, third);
        fs::write(&library, "more code").unwrap();
        assert_ne!(third, of(&loaded, false));
        assert!(fingerprint(&loaded, &[folder.path().join("gone")], false).is_err());
    }
}
