//! Passwords for private services.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use crate::error::{FileContext as _, LocalError};

/// 128 random bits as hexadecimal text, from the kernel.
pub(crate) fn random() -> Result<String, LocalError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).at("read", source)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The secret in `path`. The first call generates it.
pub(crate) fn kept_in(path: &Path) -> Result<String, LocalError> {
    match fs::read_to_string(path) {
        Ok(text) if !text.is_empty() => return Ok(text),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("read", path),
    }
    let secret = random()?;
    write_private(path, &secret)?;
    Ok(secret)
}

/// Writes a file that only its owner may read, completely or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LocalError> {
    let partial = path.with_extension("partial");
    fs::remove_file(&partial)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        .at("remove", &partial)?;
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).at("create", &partial)?;
    file.write_all(text.as_bytes()).at("write", &partial)?;
    fs::rename(&partial, path).at("rename to", path)
}
