//! `gpufleet keygen`: a key pair for signing programs.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use gpufleet::schema::SigningKey;

use super::{complaint::Complaint, exit::Exit, files, output};

/// A PEM file of one key is a few hundred bytes.
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Make a key pair for signing programs
///
/// Writes the private key to FILE, for its owner's eyes only, and the public key to FILE.pub. Jobs are signed with
/// `gpufleet submit --sign-key FILE`; workers trust it with `gpufleet-worker run --trusted-key FILE.pub`.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Where the private key goes; a file that is there is not overwritten
    file: PathBuf,
}

pub fn run(options: &Options) -> Result<Exit, Complaint> {
    let key = SigningKey::generate().map_err(|error| Complaint::new(Exit::Internal, error.to_string()))?;
    let mut public = options.file.clone().into_os_string();
    public.push(".pub");
    write_new(&options.file, &key.to_pem(), 0o600)?;
    write_new(Path::new(&public), &key.public().to_pem(), 0o644)?;
    output::emit(&format!("{}\n", key.public()))?;
    Ok(Exit::Success)
}

/// The key that `--sign-key` names.
pub fn read(path: &Path) -> Result<SigningKey, Complaint> {
    let text = files::read_text(path, KEY_FILE_BYTES_MAX)?;
    SigningKey::from_pem(&text).map_err(|problem| {
        Complaint::bad_input(format!("{}: {problem}", path.display())).hint("`gpufleet keygen FILE` makes one")
    })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Complaint> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Complaint::bad_input(format!("failed to write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_pair_is_made_once_and_its_private_half_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { file: folder.path().join("key") };
        assert_eq!(run(&options).unwrap(), Exit::Success);
        let key = read(&options.file).unwrap();
        let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
        assert_eq!(public, key.public().to_pem());
        assert_eq!(fs::metadata(&options.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(run(&options).unwrap_err().exit, Exit::BadInput);
        assert_eq!(read(&options.file).unwrap().public(), key.public(), "the first one stays");
        assert_eq!(read(&folder.path().join("key.pub")).unwrap_err().exit, Exit::BadInput);
    }
}
