//! The built programs, and the man pages and completions that they generate.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tokio::process::Command;

use crate::workspace::{self, output_of};

/// The command that producers use.
pub const COMMAND: &str = "gpufleet";
/// The driver library that programs in sessions load. The command finds it beside itself, or in `lib/gpufleet`.
pub const DRIVER: &str = "libgpufleet_driver.so";

/// A folder with built programs.
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub const fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the man pages and the completions of the command into `share`, where systems look for them.
    pub async fn describe_command(&self, share: &Path) -> anyhow::Result<()> {
        let pages = share.join("man/man1");
        fs::create_dir_all(&pages).with_context(|| format!("failed to create {}", pages.display()))?;
        output_of(self.command(["man".as_ref(), pages.as_os_str()])).await?;
        for (shell, file) in [
            ("bash", "bash-completion/completions/gpufleet"),
            ("zsh", "zsh/vendor-completions/_gpufleet"),
            ("fish", "fish/vendor_completions.d/gpufleet.fish"),
        ] {
            let script = output_of(self.command(["completions", shell])).await?;
            write(&share.join(file), &script, 0o644)?;
        }
        Ok(())
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(self.path(COMMAND));
        command.args(arguments);
        command
    }
}

/// Returns the path of a file in the repository.
pub fn of_project(path: &str) -> PathBuf {
    workspace::root().join(path)
}

/// Copies a file, and creates its parent folders.
pub fn install(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let contents = fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
    write(to, contents, mode)
}

/// Writes a file, and creates its parent folders.
pub fn write(to: &Path, contents: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    let folder = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    fs::write(to, contents).with_context(|| format!("failed to write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("failed to set the mode of {}", to.display()))
}
