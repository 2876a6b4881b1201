//! Finds the driver library that programs load.

use std::path::{Path, PathBuf};

use crate::{complaint::Complaint, environment};

/// The file that Cargo and the packages make.
const NAME: &str = "libgpufleet_driver.so";

/// The given library, or else that of the installation.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Complaint> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(Complaint::bad_input(format!("the driver library {} does not exist", path.display()))
            .hint(format!("correct --library or {}", environment::SESSION_LIBRARY))),
        None => first_of(&places(std::env::current_exe().ok().as_deref())),
    }
}

/// The places of an installation: that of Cargo, that of an archive, and that of a package.
fn places(program: Option<&Path>) -> Vec<PathBuf> {
    let folder = program.and_then(Path::parent);
    let beside = folder.map(|folder| folder.join(NAME));
    let prefix = folder.and_then(Path::parent);
    let below = prefix.map(|prefix| prefix.join("lib/gpufleet").join(NAME));
    beside.into_iter().chain(below).chain([Path::new("/usr/lib/gpufleet").join(NAME)]).collect()
}

fn first_of(places: &[PathBuf]) -> Result<PathBuf, Complaint> {
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let listed: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Complaint::bad_input(format!("the driver library was not found: there is no {}", listed.join(", no "))).hint(
            format!(
                "install the package that has {NAME}, or name the file with --library or {}",
                environment::SESSION_LIBRARY
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn the_library_is_beside_the_program_or_in_the_lib_folder_of_its_installation() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("bin/gpufleet");
        let [beside, below] = ["bin", "lib/gpufleet"].map(|folder| root.path().join(folder));
        fs::create_dir_all(&beside).unwrap();
        fs::create_dir_all(&below).unwrap();
        let places = &places(Some(&program))[..2];
        let missing = first_of(places).unwrap_err();
        assert_eq!(missing.exit, Exit::BadInput);
        assert!(missing.message.contains("bin/libgpufleet_driver.so") && missing.message.contains("lib/gpufleet/"));
        fs::write(below.join(NAME), "").unwrap();
        assert_eq!(first_of(places).unwrap(), below.join(NAME));
        fs::write(beside.join(NAME), "").unwrap();
        assert_eq!(first_of(places).unwrap(), beside.join(NAME));
    }

    #[test]
    fn a_given_library_must_exist() {
        let complaint = find(Some(Path::new("/nonexistent.so"))).unwrap_err();
        assert!(complaint.hint.unwrap().contains("GPUFLEET_SESSION_LIBRARY"));
        let library = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(find(Some(library.path())).unwrap(), library.path());
    }
}
