//! The paths of programs: gpufleet's programs are next to the running one, the services' programs where their packages
//! put them.

use std::path::{Path, PathBuf};

use crate::error::LocalError;

/// The variable for the folder of gpufleet's programs.
pub const BIN_DIR_VARIABLE: &str = "GPUFLEET_BIN_DIR";
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin";
const POSTGRES: &str = "/usr/lib/postgresql";
const INSTALL_HINT: &str = "run `gpufleet local setup`, or install the packages rabbitmq-server and postgresql";

/// The path of one of gpufleet's programs. With a chosen directory or `GPUFLEET_BIN_DIR`, the program must be there.
/// Otherwise it is found beside the running program (tests run in `deps/`, one level below) or on the path.
pub fn ours(chosen: Option<&Path>, name: &str) -> Result<PathBuf, LocalError> {
    let set = std::env::var_os(BIN_DIR_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directories = match chosen.map(Path::to_owned).or(set) {
        Some(directory) => vec![directory],
        None => beside_this_program().into_iter().chain(search_path()).collect(),
    };
    directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        LocalError::ProgramMissing {
            name: name.to_owned(),
            hint: format!(
                "build it with `cargo build --workspace`, or set {BIN_DIR_VARIABLE} to the folder that has it"
            ),
        }
    })
}

/// One of the broker's own scripts. The scripts in `/usr/sbin` are wrappers that change the user and drop the
/// environment.
pub fn rabbitmq(name: &str) -> Result<PathBuf, LocalError> {
    existing(Path::new(RABBITMQ).join(name), name)
}

/// Erlang's port mapper.
pub fn epmd() -> Result<PathBuf, LocalError> {
    system("epmd").ok_or_else(|| LocalError::ProgramMissing { name: "epmd".to_owned(), hint: INSTALL_HINT.to_owned() })
}

/// A program of the newest installed Postgres.
pub fn postgres(name: &str) -> Result<PathBuf, LocalError> {
    let versions = std::fs::read_dir(POSTGRES).into_iter().flatten();
    let newest = versions
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
            let program = path.join("bin").join(name);
            // The client package alone also creates the directory.
            path.join("bin/initdb").is_file().then_some((version, program))
        })
        .max();
    newest
        .map(|(_, path)| path)
        .ok_or_else(|| LocalError::ProgramMissing { name: name.to_owned(), hint: INSTALL_HINT.to_owned() })
        .and_then(|path| existing(path, name))
}

/// A program on the path or in the usual places.
pub fn system(name: &str) -> Option<PathBuf> {
    let usual = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    search_path().chain(usual).map(|directory| directory.join(name)).find(|path| path.is_file())
}

fn beside_this_program() -> Vec<PathBuf> {
    std::env::current_exe().map(|me| me.ancestors().skip(1).take(2).map(Path::to_owned).collect()).unwrap_or_default()
}

fn search_path() -> impl Iterator<Item = PathBuf> {
    std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
}

fn existing(path: PathBuf, name: &str) -> Result<PathBuf, LocalError> {
    if path.is_file() {
        Ok(path)
    } else {
        Err(LocalError::ProgramMissing { name: name.to_owned(), hint: INSTALL_HINT.to_owned() })
    }
}
