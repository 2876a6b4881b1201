//! The public keys of `--trusted-key`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gpufleet_schema::{PoolName, PublicKey, signature::InvalidKey};

use super::PoolSpec;
use crate::policy::Allow;

/// Why the trusted keys can't be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("failed to read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Invalid { path: PathBuf, source: InvalidKey },
    #[error("pool {0} has allow=signed, but no --trusted-key is given")]
    Missing(PoolName),
}

pub(super) fn read(files: &[PathBuf], pools: &[PoolSpec]) -> Result<Vec<PublicKey>, KeysError> {
    let keys = files.iter().map(|path| read_one(path)).collect::<Result<Vec<_>, _>>()?.concat();
    match pools.iter().find(|pool| pool.allow == Allow::Signed) {
        Some(pool) if keys.is_empty() => Err(KeysError::Missing(pool.name.clone())),
        _ => Ok(keys),
    }
}

fn read_one(path: &Path) -> Result<Vec<PublicKey>, KeysError> {
    let text = fs::read_to_string(path).map_err(|source| KeysError::Read { path: path.to_owned(), source })?;
    PublicKey::read_all(&text).map_err(|source| KeysError::Invalid { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::SigningKey;

    use super::*;

    fn pools(text: &str) -> Vec<PoolSpec> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn a_pool_for_signed_code_needs_a_key_that_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
        fs::write(&good, SigningKey::generate().unwrap().public().to_pem()).unwrap();
        fs::write(&bad, "no key").unwrap();
        let signed = pools("a:allow=signed");
        assert_eq!(read(std::slice::from_ref(&good), &signed).unwrap().len(), 1);
        assert!(matches!(read(&[], &signed), Err(KeysError::Missing(_))));
        assert!(matches!(read(&[good, bad], &signed), Err(KeysError::Invalid { .. })));
        assert!(matches!(read(&[folder.path().join("none")], &signed), Err(KeysError::Read { .. })));
        assert!(read(&[], &pools("a")).unwrap().is_empty());
    }
}
