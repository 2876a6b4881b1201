//! The program's environment variables, and the folders that its virtual environment needs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{
    message::{Place, ProgramSpec},
    podman,
};
use crate::executor::VISIBLE_DEVICES;

/// Where programs are looked up after the virtual environment.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the variables of a program: all of them, or in a container those that it has beside the image's. Those of the task come last, and
/// may replace others.
pub(super) fn variables(spec: &ProgramSpec, files: &Path) -> BTreeMap<String, String> {
    let (home, driver) = match &spec.place {
        Place::Environment(_) => (files, spec.driver_folder.as_deref()),
        Place::Container(_) => {
            (Path::new(podman::FILES), spec.driver_folder.as_ref().map(|_| Path::new(podman::DRIVER)))
        }
    };
    let mut variables: BTreeMap<String, String> = [
        ("HOME", home.display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        (VISIBLE_DEVICES, spec.device_uuid.clone()),
        ("TMPDIR", "/tmp".to_owned()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        ("GPUFLEET_ON_WORKER", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Place::Environment(environment) = &spec.place {
        let environment = environment.display();
        variables.insert("PATH".to_owned(), format!("{environment}/bin:{SYSTEM_PATH}"));
        variables.insert("VIRTUAL_ENV".to_owned(), environment.to_string());
    }
    if let Some(folder) = driver {
        variables.insert("LD_LIBRARY_PATH".to_owned(), folder.display().to_string());
    }
    variables.extend(spec.variables.clone());
    variables
}

/// Checks what the C library could not represent.
pub(super) fn check(variables: &BTreeMap<String, String>) -> Result<(), String> {
    match variables.iter().find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')) {
        None => Ok(()),
        Some((name, _)) => Err(format!(
            "the variable {name:?} can't be set: its name is empty or has a \"=\", or it has a zero byte; rename or remove it"
        )),
    }
}

/// Returns the folder of the Python installation that a virtual environment uses.
pub(super) fn python_prefix(environment: &Path) -> Option<PathBuf> {
    let config = fs::read_to_string(environment.join("pyvenv.cfg")).ok()?;
    let mut settings = config.lines().filter_map(|line| line.split_once('='));
    let (_, home) = settings.find(|(name, _)| name.trim() == "home")?;
    let prefix = Path::new(home.trim()).parent()?;
    // The programs of the system are readable anyway.
    (prefix.is_absolute() && prefix.parent().is_some() && prefix != Path::new("/usr")).then(|| prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ProgramSpec {
        ProgramSpec {
            command: vec!["true".to_owned()],
            variables: BTreeMap::new(),
            download: Vec::new(),
            folder: "/programs/1".into(),
            place: Place::Environment("/envs/torch".into()),
            cgroup: Vec::new(),
            device_uuid: "GPU-1".to_owned(),
            driver_folder: None,
            network: false,
            user: None,
            file_bytes_max: 1,
        }
    }

    #[test]
    fn a_program_has_these_variables_and_no_others() {
        let variables = variables(&spec(), Path::new("/programs/1/files"));
        let names: Vec<_> = variables.keys().map(String::as_str).collect();
        let expected = [
            "CUDA_VISIBLE_DEVICES",
            "GPUFLEET_ON_WORKER",
            "HOME",
            "LANG",
            "PATH",
            "PYTHONUNBUFFERED",
            "TMPDIR",
            "VIRTUAL_ENV",
        ];
        assert_eq!(names, expected);
        assert!(variables["PATH"].starts_with("/envs/torch/bin:"));
    }

    #[test]
    fn variables_of_the_task_replace_others() {
        let variables_of_task = [("PATH".to_owned(), "/x".to_owned()), ("EPOCHS".to_owned(), "3".to_owned())].into();
        let spec = ProgramSpec { variables: variables_of_task, driver_folder: Some("/emulator".into()), ..spec() };
        let variables = variables(&spec, Path::new("/programs/1/files"));
        assert_eq!((variables["PATH"].as_str(), variables["EPOCHS"].as_str()), ("/x", "3"));
        assert_eq!(variables["LD_LIBRARY_PATH"], "/emulator");
    }

    #[test]
    fn names_and_values_that_c_can_not_represent_are_refused() {
        for (name, value) in [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "\0")] {
            assert!(check(&[(name.to_owned(), value.to_owned())].into()).is_err(), "{name:?}={value:?}");
        }
        assert_eq!(check(&[("a".to_owned(), "b=c".to_owned())].into()), Ok(()));
    }

    #[test]
    fn the_python_of_an_environment_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |home: &str| {
            fs::write(folder.path().join("pyvenv.cfg"), format!("home = {home}\nversion = 3.12.1\n")).unwrap();
        };
        assert_eq!(python_prefix(folder.path()), None);
        write("/opt/python/bin");
        assert_eq!(python_prefix(folder.path()), Some("/opt/python".into()));
        write("/bin");
        assert_eq!(python_prefix(folder.path()), None);
    }
}
