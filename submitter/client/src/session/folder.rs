//! The private folder of a session: the socket for the program's processes, and the driver library under its usual names.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::Permissions,
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// Names of the driver library. Programs load either.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];
/// The driver library reads the path of the socket from this variable.
const SOCKET: &str = "GPUFLEET_SESSION_SOCKET";
/// The driver library creates this file beside the socket when the program needs something that sessions lack.
const LACKS: &str = ".lacks";
/// A path of a socket has at most 107 bytes; the folder's own name and that of the socket take 30 of them.
const PARENT_BYTES_MAX: usize = 77;

/// The folder, for the user alone. Dropping it removes it.
#[derive(Debug)]
pub struct SessionFolder(TempDir);

impl SessionFolder {
    /// Creates the folder with links to gpufleet's driver library.
    pub fn create(library: &Path) -> io::Result<Self> {
        let library = library.canonicalize()?;
        let mut parent = env::temp_dir();
        if parent.as_os_str().len() > PARENT_BYTES_MAX {
            parent = "/tmp".into();
        }
        let folder = tempfile::Builder::new()
            .prefix("gpufleet-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        let folder = Self(folder);
        std::fs::create_dir(folder.libraries())?;
        for name in NAMES {
            symlink(&library, folder.libraries().join(name))?;
        }
        Ok(folder)
    }

    /// The path of the socket, on which a [`Relay`](super::Relay) listens.
    pub fn socket(&self) -> PathBuf {
        self.0.path().join("socket")
    }

    /// The folder of the libraries, from which the program takes its driver.
    fn libraries(&self) -> PathBuf {
        self.0.path().join("lib")
    }

    /// The environment of the program. `library_path` is the value of `LD_LIBRARY_PATH` that it would have without a session.
    pub fn environment(&self, library_path: Option<&OsStr>) -> [(&'static str, OsString); 3] {
        let mut path = self.libraries().into_os_string().into_vec();
        if let Some(others) = library_path.filter(|others| !others.is_empty()) {
            path.push(b':');
            path.extend(others.as_bytes());
        }
        [
            (SOCKET, self.socket().into()),
            ("LD_LIBRARY_PATH", OsString::from_vec(path)),
            // numba-cuda searches other places first.
            ("NUMBA_CUDA_DRIVER", self.libraries().join(NAMES[1]).into()),
        ]
    }

    /// Whether the program has needed something that sessions lack.
    pub fn has_lacked(&self) -> bool {
        let mut path = self.socket().into_os_string();
        path.push(LACKS);
        Path::new(&path).exists()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_folder_is_private_and_has_the_library_under_both_names() {
        let library = tempfile::NamedTempFile::new().unwrap();
        let folder = SessionFolder::create(library.path()).unwrap();
        let root = folder.0.path().to_owned();
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        for name in NAMES {
            assert_eq!(
                fs::canonicalize(folder.libraries().join(name)).unwrap(),
                library.path().canonicalize().unwrap()
            );
        }
        let [(_, socket), (_, path), (_, driver)] = folder.environment(Some(OsStr::new("/opt/lib")));
        assert!(socket.len() <= 107, "{socket:?}");
        assert_eq!(path.to_str().unwrap(), format!("{}:/opt/lib", folder.libraries().display()));
        assert!(driver.to_str().unwrap().ends_with("/lib/libcuda.so.1"));
        assert_eq!(folder.environment(None)[1].1, folder.libraries().into_os_string());
        assert!(!folder.has_lacked());
        fs::write(root.join("socket.lacks"), "").unwrap();
        assert!(folder.has_lacked());
        drop(folder);
        assert!(!root.exists());
    }

    #[test]
    fn a_library_that_does_not_exist_is_an_error() {
        assert!(SessionFolder::create(Path::new("/nonexistent/libgpufleet_driver.so")).is_err());
    }
}
