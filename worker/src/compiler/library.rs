//! Finds NVRTC.

use std::{
    env,
    ffi::{CStr, OsStr, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Environment variable with the path of NVRTC's library or of its folder.
pub const NVRTC_VARIABLE: &str = "GPUFLEET_NVRTC";
/// File names of the library, the preferred one first. Version 13 is not included, because a 12.x driver refuses its PTX.
const FILES: [&str; 2] = ["libnvrtc.so.12", "libnvrtc.so"];
/// Folder in which the installer puts NVRTC, below the cache folder.
const INSTALLED: &str = "gpufleet/python/nvidia/cuda_nvrtc/lib";
const CACHED: &str = "gpufleet/nvrtc";
/// Folder of the toolkit in NVIDIA's packages.
const TOOLKIT: &str = "/usr/local/cuda";
/// File names to try if [`Nvrtc::library`] is a bare name.
pub(super) const SYSTEM_NAMES: [&str; 2] = FILES;
/// Maximum depth of a library below [`CACHED`]: `VERSION/lib`.
const CACHED_DEPTH_MAX: usize = 3;

/// A library and the headers that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nvrtc {
    /// An absolute path, or a bare name for the system's loader.
    pub library: PathBuf,
    pub includes: Vec<PathBuf>,
}

impl Nvrtc {
    /// Finds NVRTC at the given path, or else by [`NVRTC_VARIABLE`], in the installer's folder, or in the system.
    pub fn locate(told: Option<&Path>) -> Result<Self, String> {
        let by_variable = env::var_os(NVRTC_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = told.map(Path::to_owned).or(by_variable) {
            let library = library_at(&path).ok_or_else(|| format!("{} contains no {}", path.display(), FILES[0]))?;
            return Ok(Self::with_includes(library));
        }
        let cache = cache_folder();
        let installed = cache.as_ref().and_then(|cache| library_at(&cache.join(INSTALLED)));
        let cached = || cache.as_ref().and_then(|cache| search(&cache.join(CACHED), CACHED_DEPTH_MAX));
        let toolkit = || library_at(&Path::new(TOOLKIT).join("lib64"));
        if let Some(library) = installed.or_else(cached).or_else(toolkit) {
            return Ok(Self::with_includes(library));
        }
        // Only the child opens libraries. It reports an error if the system's loader finds none of the names.
        Ok(Self { library: FILES[0].into(), includes: existing([Path::new(TOOLKIT).join("include")]) })
    }

    /// Finds the headers beside a library: a toolkit's `include`, or the sibling packages of a PyPI installation.
    fn with_includes(library: PathBuf) -> Self {
        let library = library.canonicalize().unwrap_or(library);
        let package = library.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let siblings = package.parent().map(Path::to_owned).unwrap_or_default();
        let includes = existing([
            siblings.join("cuda_runtime/include"),
            siblings.join("cuda_cccl/include"),
            siblings.join("cuda_nvcc/include"),
            package.join("include"),
            Path::new(TOOLKIT).join("include"),
        ]);
        Self { library, includes }
    }
}

fn cache_folder() -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let by_variable = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute);
    by_variable.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
}

fn existing(folders: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    folders.into_iter().filter(|folder| folder.is_dir()).collect()
}

fn library_at(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    let inside = FILES.iter().flat_map(|name| [path.join(name), path.join("lib").join(name)]);
    inside.into_iter().find(|file| file.is_file())
}

fn search(folder: &Path, depth: usize) -> Option<PathBuf> {
    let found = library_at(folder);
    if found.is_some() || depth == 0 {
        return found;
    }
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    // Sorted by name, the newest version is last.
    folders.sort();
    folders.iter().rev().find_map(|folder| search(folder, depth - 1))
}

/// Returns the file of the library that contains this function.
pub(super) fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: the information is a local for which all-zero is valid. The name that it points to stays while the library is loaded.
    let library = unsafe {
        let mut information: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut information) == 0 || information.dli_fname.is_null() {
            return None;
        }
        PathBuf::from(OsStr::from_bytes(CStr::from_ptr(information.dli_fname).to_bytes()))
    };
    library.canonicalize().ok()
}

/// Returns the files of NVRTC's builtins, which are beside the library that contains this function.
pub(super) fn builtins(function: *const c_void, version: &str) -> Vec<PathBuf> {
    let folder = file_of(function).and_then(|library| library.parent().map(Path::to_owned));
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let name = format!("libnvrtc-builtins.so.{version}");
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|file| file.as_bytes().starts_with(name.as_bytes())))
        .collect()
}
