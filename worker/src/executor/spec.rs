//! The value of `--cuda`, which selects the CUDA driver of a worker.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// A CUDA driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CudaSpec {
    /// NVIDIA's driver, as found by the system's loader.
    #[default]
    System,
    /// The emulator that is installed with the worker.
    Emulated,
    /// The system's driver if it has a device, or else the emulator.
    Auto,
    /// A library, by its path.
    Path(PathBuf),
}

/// Environment variable with the path of the emulator's library.
pub const EMULATOR_LIBRARY_VARIABLE: &str = "GPUFLEET_EMULATOR_LIB";
pub const EMULATOR_FILE: &str = "libgpufleet_emulator.so";
/// File names of NVIDIA's driver; the first one exists without the development package.
pub const SYSTEM_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

impl fmt::Display for CudaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Emulated => f.write_str("emulated"),
            Self::Auto => f.write_str("auto"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// A word that is neither a driver's name nor a path, such as a misspelt name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give system, emulated, auto, or the path of a library, which has a slash or .so")]
pub struct InvalidCudaSpec;

/// A missing library is not an error here, but when it is opened.
impl FromStr for CudaSpec {
    type Err = InvalidCudaSpec;

    fn from_str(text: &str) -> Result<Self, InvalidCudaSpec> {
        match text {
            "system" => Ok(Self::System),
            "emulated" => Ok(Self::Emulated),
            "auto" => Ok(Self::Auto),
            path if path.contains('/') || path.contains(".so") => Ok(Self::Path(path.into())),
            _ => Err(InvalidCudaSpec),
        }
    }
}

/// Returns the path of the emulator's library, as installed or as built by cargo, relative to this executable.
pub fn emulator_library() -> Option<PathBuf> {
    if let Some(path) = env::var_os(EMULATOR_LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let executable = env::current_exe().ok()?;
    let folder = executable.parent()?;
    emulator_places(folder).into_iter().find(|path| path.is_file())
}

/// Returns the places to search for the emulator: the executable's folder, cargo's `deps` below it, and the `lib` of an
/// installation.
pub fn emulator_places(folder: &Path) -> [PathBuf; 3] {
    [folder.join(EMULATOR_FILE), folder.join("deps").join(EMULATOR_FILE), folder.join("../lib").join(EMULATOR_FILE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_prints_as_it_is_typed() {
        for text in ["system", "emulated", "auto", "/opt/cuda/libcuda.so.1"] {
            assert_eq!(text.parse::<CudaSpec>().unwrap().to_string(), text);
        }
    }
}
