//! A private store of container images, which podman imports from folders of this machine. It needs no registry, and leaves the images of the
//! machine's podman alone.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::programs;

/// The image of [`ImageStore::busybox`].
pub const BUSYBOX: &str = "localhost/busybox:2";
/// The commands that the image has.
const APPLETS: [&str; 24] = [
    "sh", "ash", "cat", "cp", "cut", "dd", "echo", "env", "grep", "head", "id", "kill", "ls", "mkdir", "mount", "nc",
    "ps", "pwd", "seq", "sleep", "sort", "touch", "true", "wc",
];

/// A folder with images. They stay there, so that a second process finds them.
#[derive(Debug)]
pub struct ImageStore {
    folder: PathBuf,
}

impl ImageStore {
    /// Opens the store in a folder, which is made if it does not exist.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// The command line of a podman with these images. crun, podman's usual runtime, does not run where both versions of cgroups are mounted.
    pub fn podman(&self) -> String {
        let folder = self.folder.display();
        format!("podman --root {folder}/store --runroot {folder}/run --runtime runc")
    }

    /// Makes an image from the files of a folder, unless there is one of this name. Another process may do the same.
    pub fn import(&self, image: &str, root: &Path) -> io::Result<()> {
        let lock = fs::File::create(self.folder.join("lock"))?;
        lock.lock()?;
        if self.run(&["image", "exists", image]).is_ok() {
            return Ok(());
        }
        let archive = self.folder.join("image.tar");
        let mut tar = Command::new("tar");
        succeed(tar.arg("-C").arg(root).arg("-cf").arg(&archive).arg("."))?;
        self.run(&["import", "--quiet", &archive.display().to_string(), image])?;
        fs::remove_file(archive)
    }

    /// Makes the image [`BUSYBOX`], which has a shell and little else.
    pub fn busybox(&self) -> io::Result<()> {
        let root = tempfile::tempdir_in(&self.folder)?;
        for folder in ["bin", "etc", "tmp"] {
            fs::create_dir(root.path().join(folder))?;
        }
        // Runtimes give this folder's mode to the one in memory that they mount there.
        fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777))?;
        let busybox = programs::system("busybox").ok_or_else(|| io::Error::other("busybox is not installed"))?;
        fs::copy(busybox, root.path().join("bin/busybox"))?;
        APPLETS.iter().try_for_each(|applet| symlink("busybox", root.path().join("bin").join(applet)))?;
        self.import(BUSYBOX, root.path())
    }

    fn run(&self, arguments: &[&str]) -> io::Result<()> {
        let podman = self.podman();
        let mut words = podman.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        succeed(command.args(words).args(arguments))
    }
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{command:?}: {}: {said}", output.status)))
}
