//! Fresh Debian systems, made with debootstrap. A system that is entered shares this machine's kernel and network; a system that
//! is booted with systemd has a network of its own.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use gpufleet_local::state;
use tempfile::TempDir;
use tokio::process::Command;

use crate::workspace;

/// The certificates that this machine trusts. They may include that of a proxy.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// A script that keeps packages from starting their services, because the system shares the ports of this machine.
const POLICY: &str = "#!/bin/sh\nexit 101\n";
/// The folder in the system for files from this machine.
const FOLDER: &str = "packages";
/// The systemd unit that runs a script in a booted system, and its time limit in seconds.
const SCRIPT_UNIT: &str = "gpufleet-script.service";
const SCRIPT_LIMIT_S: u64 = 600;
/// A shell script that enters the system. The system has its own process and mount namespaces, which end with the script. The arguments are
/// the system, the script, and folders of this machine to share.
const ENTER: &str = r#"
system=$1 script=$2
shift 2
mount --bind "$system" "$system"
cd "$system"
mount -t proc proc "$system/proc"
mount -t sysfs -o ro sysfs "$system/sys"
mount -t tmpfs tmpfs "$system/dev/shm"
mount -t devpts devpts "$system/dev/pts"
for folder; do
    mkdir -p "$system$folder"
    mount --bind "$folder" "$system$folder"
done
pivot_root . mnt
umount --lazy mnt
exec sh "$script"
"#;

/// A shell script that boots the system in namespaces of its own, including the network's. The arguments are the system and the unit to
/// start.
///
/// systemd gets a cgroup in the unified hierarchy, which is present even on machines that use the older hierarchies.
const BOOT: &str = r#"
unified=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)
cgroup=$unified/gpufleet-debian-$$
mkdir "$cgroup"
echo $$ > "$cgroup/cgroup.procs"
code=0
unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup sh -eu -c "$INSIDE" sh "$@" || code=$?
echo $$ > "$unified/cgroup.procs"
find "$cgroup" -depth -type d -exec rmdir {} +
exit $code
"#;
const INSIDE: &str = r#"
system=$1 unit=$2
mount --bind "$system" "$system"
cd "$system"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mkdir -p run/outside
pivot_root . run/outside
umount --lazy run/outside
exec env --ignore-environment container=lxc /lib/systemd/systemd --unit "$unit" --log-target=null --show-status=no
"#;

/// A Debian system, which is deleted when it is dropped.
pub struct Debian {
    folder: TempDir,
    shared: Vec<PathBuf>,
}

impl Debian {
    /// Installs a release of Debian into a new folder.
    pub async fn install(release: &str) -> anyhow::Result<Self> {
        ensure!(state::is_root(), "debootstrap and mounts need root: run this as root, or with sudo");
        let parent = workspace::target()?;
        let folder = tempfile::tempdir_in(&parent)
            .with_context(|| format!("failed to create a folder in {}", parent.display()))?;
        let mut bootstrap = Command::new("debootstrap");
        bootstrap.args(["--variant=minbase", release]).arg(folder.path());
        workspace::run(bootstrap).await?;
        let system = Self { folder, shared: Vec::new() };
        let policy = system.folder.path().join("usr/sbin/policy-rc.d");
        fs::write(&policy, POLICY)
            .and_then(|()| fs::set_permissions(&policy, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("failed to write {}", policy.display()))?;
        fs::create_dir(system.folder.path().join(FOLDER)).context("failed to create the folder of packages")?;
        system.copy(Path::new(CERTIFICATES), "certificates.crt")?;
        Ok(system)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Copies a file into the system's folder of packages.
    pub fn copy(&self, file: &Path, name: &str) -> anyhow::Result<()> {
        let to = self.folder.path().join(FOLDER).join(name);
        fs::copy(file, &to).with_context(|| format!("failed to copy {} to {}", file.display(), to.display())).map(drop)
    }

    /// Shares a folder of this machine with the system, under the same path.
    pub fn share(&mut self, folder: PathBuf) {
        self.shared.push(folder);
    }

    /// Runs a script from the system's folder of packages in the system.
    pub async fn run(&self, script: &str, variables: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-eu", "-c", ENTER, "sh"]);
        enter.arg(self.folder.path()).arg(format!("/{FOLDER}/{script}")).args(&self.shared);
        enter.envs(variables.iter().copied());
        workspace::run(enter).await
    }

    /// Boots the system, and runs a script from its folder of packages as a service after the system's services. Shows the script's output.
    pub async fn boot(&self, script: &str) -> anyhow::Result<()> {
        let output = format!("{FOLDER}/output");
        let unit = format!(
            "[Unit]\nWants=multi-user.target\nAfter=multi-user.target\nSuccessAction=exit\nFailureAction=exit\n\
             [Service]\nType=oneshot\nExecStart=/bin/sh /{FOLDER}/{script}\nStandardOutput=file:/{output}\n\
             StandardError=inherit\nTimeoutStartSec={SCRIPT_LIMIT_S}\n"
        );
        let within = |path: &str| self.folder.path().join(path);
        for (path, text) in [
            (&*format!("etc/systemd/system/{SCRIPT_UNIT}"), &*unit),
            ("etc/hostname", "debian\n"),
            ("etc/hosts", "127.0.0.1 localhost debian\n"),
        ] {
            fs::write(within(path), text).with_context(|| format!("failed to write {path}"))?;
        }
        let mut boot = Command::new("sh");
        boot.args(["-eu", "-c", BOOT, "sh"]).arg(self.folder.path()).arg(SCRIPT_UNIT).env("INSIDE", INSIDE);
        let result = workspace::run(boot).await;
        let text = fs::read(within(&output)).context("failed to read the output of the script")?;
        io::stderr().write_all(&text).context("failed to show the output of the script")?;
        result
    }
}
