//! `gpufleet keygen`: creates a key pair for signing programs.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use gpufleet::schema::SigningKey;

use super::{
    complaint::Complaint,
    exit::Exit,
    files::{self, Purpose},
    output,
};

/// Create a key pair for signing programs
///
/// Writes the private key to FILE, which only its owner can read, and the public key to FILE.pub. Sign jobs with
/// `gpufleet submit --sign-key FILE`. Workers trust the key if they run with `gpufleet-worker run --trusted-key
/// FILE.pub`.
#[derive(Debug, Args)]
pub struct Options {
    /// File for the private key; an existing file is never overwritten
    file: PathBuf,
}

pub fn run(options: &Options) -> Result<Exit, Complaint> {
    let key = SigningKey::generate().map_err(|error| Complaint::new(Exit::Internal, error.to_string()))?;
    let mut public = options.file.clone().into_os_string();
    public.push(".pub");
    write_new(&options.file, &key.to_pem(), 0o600)?;
    // A private key without its public key is useless, and would block the next try.
    write_new(Path::new(&public), &key.public().to_pem(), 0o644)
        .map_err(|complaint| taking_back(&options.file, complaint))?;
    output::emit(&format!("{}\n", key.public()))?;
    Ok(Exit::Success)
}

/// The key that `--sign-key` names.
pub fn read(path: &Path) -> Result<SigningKey, Complaint> {
    let text = files::read_text(path, Purpose::Key)?;
    SigningKey::from_pem(&text).map_err(|problem| {
        Complaint::bad_input(format!("{}: {problem}", path.display())).hint("create a key with `gpufleet keygen FILE`")
    })
}

/// Writes a new file completely, or leaves none.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Complaint> {
    let failed = |error: io::Error| files::unwritable(path, &error);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(|error| taking_back(path, failed(error)))
}

/// Deletes a file that this run created, after the failure in the complaint.
fn taking_back(path: &Path, complaint: Complaint) -> Complaint {
    match fs::remove_file(path) {
        Ok(()) => complaint,
        Err(error) => {
            complaint.hint(format!("remove {} by hand, because deleting it failed too: {error}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_pair_is_created_once_and_only_its_owner_can_read_the_private_key() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { file: folder.path().join("key") };
        assert_eq!(run(&options).unwrap(), Exit::Success);
        let key = read(&options.file).unwrap();
        let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
        assert_eq!(public, key.public().to_pem());
        assert_eq!(fs::metadata(&options.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(run(&options).unwrap_err().exit, Exit::BadInput);
        assert_eq!(read(&options.file).unwrap().public(), key.public(), "the first key stays");
        assert_eq!(read(&folder.path().join("key.pub")).unwrap_err().exit, Exit::BadInput);
    }

    #[test]
    fn a_failure_to_write_the_public_key_removes_the_private_key() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { file: folder.path().join("key") };
        fs::write(folder.path().join("key.pub"), "of another user").unwrap();
        let complaint = run(&options).unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        assert!(complaint.message.contains("key.pub"), "{}", complaint.message);
        assert!(!options.file.exists());
        assert_eq!(fs::read_to_string(folder.path().join("key.pub")).unwrap(), "of another user");
        fs::remove_file(folder.path().join("key.pub")).unwrap();
        assert_eq!(run(&options).unwrap(), Exit::Success, "the failed run left no file");
    }
}
