//! The environment of the examples: one private broker and database for all, and a folder and a fleet for each page.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use gpufleet_local::{
    LocalFleet, Services, Signal,
    process::marked,
    programs,
    setup::{Part, cache_folder},
    state,
};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::{
    page::Page,
    shell::{Outcome, Shell},
};

/// The folder of the demo's sample files, as the pages name it.
const SAMPLES: &str = ".gpufleet/demo";
/// The parts of the repository that the pages use.
const COPIED: [&str; 5] = ["deploy", "schema/golden", "tests/foreign", "kernels", "emulator/programs"];
/// The folder of the built programs, as the pages name it.
const BUILT: &str = "target/debug";
/// The variable for the interpreter that the pages get as `python`. By default, it has the packages of the Python package's tests.
const PYTHON_VARIABLE: &str = "DOCUMENTATION_PYTHON";

/// The services and files that all pages share.
#[derive(Debug)]
pub struct Ground {
    services: OnceCell<Arc<Services>>,
    /// A copy of the parts of the repository that the pages use, in their state after `cargo xtask demo`.
    template: TempDir,
}

/// The fleet and the terminal of a page. The fleet starts with the first block that needs it.
#[derive(Debug)]
pub struct Place {
    pub shell: Shell,
    fleet: Option<LocalFleet>,
    /// Whether the page runs `gpufleet local up` itself.
    has_its_own: bool,
    label: String,
    folder: TempDir,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace")
}

impl Ground {
    pub fn new() -> Self {
        let template = tempfile::tempdir().unwrap();
        for path in COPIED {
            copy(&root().join(path), &template.path().join(path));
        }
        let mut samples = Command::new(programs::ours(None, "gpufleet").unwrap());
        samples.args(["init", "--demo"]).arg(template.path().join(SAMPLES)).stdout(Stdio::null());
        assert!(samples.status().unwrap().success(), "the demo's sample files were not written");
        Self { services: OnceCell::new(), template }
    }

    pub fn place(&self, page: &Page) -> Place {
        let folder = tempfile::tempdir().unwrap();
        // If root runs `gpufleet local up`, Postgres runs as another user, which must be able to enter the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let (clone, notes) = (folder.path().join("gpufleet"), folder.path().join("notes"));
        copy(self.template.path(), &clone);
        fs::create_dir(&notes).unwrap();
        fs::create_dir_all(clone.join(BUILT).parent().expect("the folder is in another one")).unwrap();
        symlink(programs_folder(), clone.join(BUILT)).unwrap();
        let (commands, cache) = (folder.path().join("commands"), folder.path().join("cache"));
        fs::create_dir(&commands).unwrap();
        write_python(&commands.join("python"));
        // The worker finds NVRTC there. What other programs cache belongs to the page.
        fs::create_dir(&cache).unwrap();
        symlink(cache_folder().unwrap(), cache.join("gpufleet")).unwrap();
        let label = page.path.trim_start_matches("docs/src/").trim_end_matches(".md");
        let label = label.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let shell = Shell::new(clone, notes, environment(folder.path()));
        Place { shell, fleet: None, has_its_own: page.starts_fleet(), label, folder }
    }

    async fn services(&self) -> &Arc<Services> {
        let start = async || Services::ephemeral().await.unwrap_or_else(|error| panic!("{error}"));
        self.services.get_or_init(start).await
    }
}

impl Place {
    /// Starts the page's fleet, and names it in the environment, as a user of a remote fleet does.
    pub async fn start_fleet(&mut self, ground: &Ground) {
        if self.has_its_own || self.fleet.is_some() {
            return;
        }
        let blobs = self.folder.path().join("blobs");
        fs::create_dir(&blobs).unwrap();
        let fleet = LocalFleet::builder().label(&self.label).on(ground.services().await).blobs(&blobs).start().await;
        let fleet = fleet.unwrap_or_else(|error| panic!("{error}"));
        self.shell.set("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
        self.shell.set("GPUFLEET_DATABASE_URL", &fleet.endpoints().database_url);
        self.shell.set("GPUFLEET_BLOBS", blobs.to_str().unwrap());
        self.fleet = Some(fleet);
    }

    /// Stops the commands in the background. Returns those that failed, with their line numbers.
    pub async fn stop(mut self) -> Vec<(usize, Outcome)> {
        let bad = self.shell.stop().await;
        if self.has_its_own {
            self.shell.run("gpufleet local down").await;
        }
        if let Some(fleet) = self.fleet.take() {
            fleet.stop().await.unwrap();
        }
        bad
    }
}

/// Stops the local fleet even after a failed test.
impl Drop for Place {
    fn drop(&mut self) {
        let local = self.folder.path().join("state/gpufleet/local");
        marked(state::MARKER, &local.to_string_lossy()).into_iter().for_each(|identity| identity.signal(Signal::Kill));
    }
}

fn programs_folder() -> PathBuf {
    programs::ours(None, "gpufleet").unwrap().parent().expect("a program lies in a folder").to_owned()
}

/// Writes the command that readers get when they activate a virtual environment. `python3` is that of the system.
fn write_python(command: &Path) {
    let interpreter = env::var_os(PYTHON_VARIABLE).map(PathBuf::from);
    let interpreter = interpreter.unwrap_or_else(|| Part::PythonTools.interpreter().unwrap());
    fs::write(command, format!("#!/bin/sh\nexec '{}' \"$@\"\n", interpreter.display())).unwrap();
    fs::set_permissions(command, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the environment of a user's terminal: the built programs are on the path, and Python has pika. Workers that
/// a page starts use the emulated device.
fn environment(folder: &Path) -> Vec<(String, String)> {
    let (commands, bin) = (folder.join("commands"), programs_folder());
    let path = format!("{}:{}:{}", commands.display(), bin.display(), env::var("PATH").unwrap_or_default());
    let packages = env::var_os("PYTHONPATH").map(|paths| env::split_paths(&paths).collect::<Vec<_>>());
    let packages = [Part::Pika.folder().unwrap()].into_iter().chain(packages.unwrap_or_default());
    let variables: [(&str, PathBuf); 7] = [
        ("PATH", path.into()),
        ("PYTHONPATH", env::join_paths(packages).unwrap().into()),
        ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ("XDG_STATE_HOME", folder.join("state")),
        ("XDG_CONFIG_HOME", folder.join("config")),
        ("XDG_CACHE_HOME", folder.join("cache")),
        ("GPUFLEET_CUDA", "emulated".into()),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_str().expect("the paths are UTF-8").to_owned())).into()
}

/// Copies a folder and all in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
