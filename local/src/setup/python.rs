//! Installs Python packages into gpufleet's own folders, without changing system packages or virtual environments.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Folder, SetupError, apt, cache_folder, failed, run};
use crate::progress::Progress;

/// A folder and its packages.
pub(super) struct Collection {
    folder: &'static str,
    title: &'static str,
    /// Exact versions, because the catalog's PTX is compared with the output of this NVRTC.
    packages: &'static [&'static str],
}

/// NVRTC 12.9, because version 13 writes PTX that drivers of 12.x refuse. The other packages have headers:
/// `cuda_fp16.h`, `cuda/std`, and the headers below `crt/` that `mma.h` includes, which come with the assembler.
pub(super) const COMPILER: Collection = Collection {
    folder: "python",
    title: "NVRTC and CUDA headers (137 MB)",
    packages: &[
        "nvidia-cuda-nvrtc-cu12==12.9.86",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "nvidia-cuda-cccl-cu12==12.9.27",
        "nvidia-cuda-nvcc-cu12==12.9.86",
    ],
};

/// `ptxas` of the same release, which checks whether PTX is legal.
pub(super) const ASSEMBLER: Collection = Collection {
    folder: "python-nvcc",
    title: "NVIDIA's PTX assembler (94 MB)",
    packages: &["nvidia-cuda-nvcc-cu12==12.9.86"],
};

pub(super) const PIKA: Collection =
    Collection { folder: "python-tests", title: "pika, an AMQP client for the tests", packages: &["pika==1.4.4"] };

/// Celery, Ray, aio-pika, NumPy and their dependencies. All versions are fixed, so that figures of different days are comparable.
pub(super) const COMPARISON: Collection = Collection {
    folder: "python-comparison",
    title: "Celery, Ray, aio-pika and NumPy (110 MB)",
    packages: &[
        "aio-pika==10.2.1",
        "aiormq==7.2.4",
        "amqp==5.4.2",
        "attrs==26.1.0",
        "billiard==4.3.2",
        "celery==5.7.0",
        "certifi==2026.10.18",
        "charset-normalizer==3.5.2",
        "click==8.5.1",
        "click-didyoumean==0.3.1",
        "click-plugins==1.1.1.2",
        "click-repl==0.4.1",
        "filelock==4.2.11",
        "idna==3.20",
        "jsonschema==4.26.0",
        "jsonschema-specifications==2025.9.1",
        "kombu==5.7.0",
        "msgpack==1.2.4",
        "multidict==7.2.1",
        "numpy==2.4.6",
        "packaging==26.3",
        "pamqp==4.0.1",
        "prompt_toolkit==3.0.53",
        "propcache==0.5.4",
        "protobuf==7.36.2",
        "python-dateutil==2.9.0.post0",
        "PyYAML==6.0.3",
        "ray==2.60.0",
        "referencing==0.37.0",
        "requests==2.34.2",
        "rpds-py==2026.9.1",
        "six==1.17.0",
        "typing_extensions==4.16.0",
        "tzlocal==5.4.5",
        "urllib3==2.8.0",
        "vine==5.1.0",
        "wcwidth==0.9.4",
        "yarl==1.25.1",
    ],
};

/// Lists the packages of a complete folder: without it, or with another list, the folder is made again.
const MARKER: &str = "gpufleet-packages.txt";

impl Folder for Collection {
    fn path(&self) -> Result<PathBuf, SetupError> {
        Ok(cache_folder()?.join(self.folder))
    }

    fn is_installed(&self) -> bool {
        let Ok(folder) = self.path() else { return false };
        fs::read_to_string(folder.join(MARKER)).is_ok_and(|text| text == self.list())
    }

    fn install(&self, progress: &dyn Progress) -> Result<(), SetupError> {
        let (folder, partial, old) = (self.path()?, self.beside("partial")?, self.beside("old")?);
        let python = with_pip(progress)?;
        remove(&partial)?;
        remove(&old)?;
        fs::create_dir_all(&partial).map_err(failed("create", &partial))?;
        let mut command = pip(&python);
        command.args([
            "install",
            "--no-deps",
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar=off",
            "--target",
        ]);
        command.arg(&partial).args(self.packages);
        let what = format!("install {} with pip", self.title);
        progress.step(&what, || run(command, "pip install", progress))?;
        let marker = partial.join(MARKER);
        fs::write(&marker, self.list()).map_err(failed("write", &marker))?;
        if folder.exists() {
            fs::rename(&folder, &old).map_err(failed("move away", &folder))?;
        }
        fs::rename(&partial, &folder).map_err(failed("rename to", &folder))?;
        remove(&old)
    }
}

impl Collection {
    fn list(&self) -> String {
        self.packages.iter().map(|package| format!("{package}\n")).collect()
    }

    fn beside(&self, what: &str) -> Result<PathBuf, SetupError> {
        Ok(cache_folder()?.join(format!("{}.{what}", self.folder)))
    }
}

/// pip of an interpreter.
pub(super) fn pip(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip"]);
    // These settings of a developer would install the packages elsewhere.
    for name in ["PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME"] {
        command.env_remove(name);
    }
    // pip warns about installing as root, but our folders can't break system packages.
    command.env("PIP_ROOT_USER_ACTION", "ignore");
    command
}

pub(super) fn with_pip(progress: &dyn Progress) -> Result<PathBuf, SetupError> {
    if let Some(python) = found_pip() {
        return Ok(python);
    }
    apt::install(&["python3", "python3-pip"], progress)?;
    found_pip().ok_or(SetupError::NoPip)
}

fn found_pip() -> Option<PathBuf> {
    let has_pip = |python: &PathBuf| {
        Command::new(python).args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().map(PathBuf::from).find(has_pip)
}

pub(super) fn remove(folder: &Path) -> Result<(), SetupError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", folder)(error)),
        _ => Ok(()),
    }
}
