//! A private virtual environment with the tools that build and test the Python package.
//!
//! Unlike the folders of [`super::python`], it hides the packages of the system, so the tests see what a user's own
//! environment would have.

use std::{fs, path::PathBuf, process::Command};

use super::{SetupError, cache_folder, failed, python, run};
use crate::progress::Progress;

const FOLDER: &str = "python-environment";
/// Its text is also in a complete environment, so that another list makes the environment anew.
const REQUIREMENTS: &str = include_str!("../../../python/requirements.txt");
const MARKER: &str = "requirements.txt";

/// The interpreter.
pub(super) fn interpreter() -> Result<PathBuf, SetupError> {
    Ok(folder()?.join("bin/python"))
}

pub(super) fn is_installed() -> bool {
    let Ok(folder) = folder() else { return false };
    fs::read_to_string(folder.join(MARKER)).is_ok_and(|text| text == REQUIREMENTS)
}

/// Makes the environment beside its folder and renames it. Nothing uses its scripts, which contain the former path.
pub(super) fn install(progress: &dyn Progress) -> Result<(), SetupError> {
    let (folder, partial) = (folder()?, cache_folder()?.join(format!("{FOLDER}.partial")));
    let python = python::with_pip(progress)?;
    python::remove(&partial)?;
    let mut make = Command::new(&python);
    make.args(["-m", "venv", "--without-pip"]).arg(&partial);
    let list = partial.join("requirements.partial");
    let mut install = python::pip(&python);
    install.arg("--python").arg(partial.join("bin/python"));
    install.args(["install", "--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "-r"]);
    install.arg(&list);
    progress.step("install maturin, pytest, mypy, ruff, Jupyter, NumPy, Arrow and Numba with pip (330 MB)", || {
        run(make, "python3 -m venv", progress)?;
        fs::write(&list, REQUIREMENTS).map_err(failed("write", &list))?;
        run(install, "pip install", progress)
    })?;
    let marker = partial.join(MARKER);
    fs::rename(&list, &marker).map_err(failed("rename to", &marker))?;
    python::remove(&folder)?;
    fs::rename(&partial, &folder).map_err(failed("rename to", &folder))
}

fn folder() -> Result<PathBuf, SetupError> {
    Ok(cache_folder()?.join(FOLDER))
}
