//! The settings of the disk cache of compiled programs: `--cache-dir` and `--cache-size`.

use std::{env, ffi::OsString, path::PathBuf};

use super::size::ByteSize;

/// Default of `--cache-size`: enough for about ten thousand programs.
pub const SIZE_DEFAULT: &str = "1GiB";
/// Environment variable that systemd sets for a service with `CacheDirectory=`.
const OF_SYSTEMD: &str = "CACHE_DIRECTORY";
const OF_USER: &str = "XDG_CACHE_HOME";

/// The folder and the size of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSpec {
    /// The folder; `None` for a user without a cache folder.
    pub folder: Option<PathBuf>,
    /// Whether the folder was configured explicitly.
    pub is_told: bool,
    pub bytes_max: u64,
}

impl CacheSpec {
    pub(super) fn of(folder: Option<PathBuf>, size: ByteSize) -> Self {
        let is_told = folder.is_some();
        let folder = folder.or_else(|| usual_folder(|name| env::var_os(name)));
        Self { folder, is_told, bytes_max: size.0 }
    }
}

fn usual_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd may list several folders; the first one is used.
    let of_systemd = variable(OF_SYSTEMD).and_then(|folders| env::split_paths(&folders).next());
    if let Some(folder) = of_systemd.filter(|folder| folder.is_absolute()) {
        return Some(folder.join("modules"));
    }
    let of_user = absolute(OF_USER).or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    of_user.map(|folder| folder.join("gpufleet/modules"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_size_is_a_size_and_so_is_none() {
        assert_eq!(SIZE_DEFAULT.parse(), Ok(ByteSize(1 << 30)));
        assert_eq!("0".parse(), Ok(ByteSize(0)));
    }

    #[test]
    fn the_usual_folder_is_systemds_then_the_users() {
        let folder = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> = set.iter().map(|(name, value)| ((*name).into(), value.into())).collect();
            usual_folder(|name| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        let (home, user, systemd) =
            (("HOME", "/home/a"), (OF_USER, "/cache"), (OF_SYSTEMD, "/var/cache/gpufleet:/other"));
        assert_eq!(folder(&[home]), Some("/home/a/.cache/gpufleet/modules".into()));
        assert_eq!(folder(&[home, user]), Some("/cache/gpufleet/modules".into()));
        assert_eq!(folder(&[home, (OF_USER, "relative")]), Some("/home/a/.cache/gpufleet/modules".into()));
        assert_eq!(folder(&[home, user, systemd]), Some("/var/cache/gpufleet/modules".into()));
        assert_eq!(folder(&[]), None);
    }
}
