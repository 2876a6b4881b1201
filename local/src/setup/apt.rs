//! Installs Debian's and Ubuntu's packages.
//!
//! Installing a package must not start its service, which could take the ports of another service on the machine.
//! Debian's `policy-rc.d` prevents the start. That script exists only during the installation. A copy that a crash has
//! left behind deletes itself at its first use.

use std::{path::Path, process::Command};

use super::{SetupError, run};
use crate::{programs, progress::Progress, state};

/// Seconds that apt waits for another apt.
const LOCK_SECONDS: u32 = 300;

/// Installs the packages in its arguments. Repairs dpkg and updates the package lists only if needed.
const SCRIPT: &str = r#"
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    cat > "$policy" <<END
#!/bin/sh
# gpufleet installs packages just now, and their services shall not start. Without that process this file means nothing.
[ -d /proc/$$ ] && exit 101
rm -f "\$0"
exit 0
END
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
install() { apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=LOCK -o Dpkg::Use-Pty=0 "$@"; }
install "$@" && exit
# An earlier run may have been cut off in the middle.
dpkg --configure -a && install "$@" && exit
echo "The package lists are out of date; updating them."
apt-get update -o DPkg::Lock::Timeout=LOCK && install "$@"
"#;

/// The missing packages of the services.
pub(super) fn missing_services() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if programs::rabbitmq("rabbitmq-server").is_err() || programs::epmd().is_err() {
        packages.push("rabbitmq-server");
    }
    if programs::postgres("postgres").is_err() {
        packages.push("postgresql");
    }
    packages
}

/// Programs of Slurm on one machine. Each program is followed by its package.
pub(super) const SLURM: &[(&str, &str)] =
    &[("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("munged", "munge")];
/// Programs for the console's tests.
pub(super) const BROWSER: &[(&str, &str)] = &[("chromium", "chromium"), ("nginx", "nginx-light")];
/// Programs that build a Debian package.
pub(super) const DEBIAN_TOOLS: &[(&str, &str)] = &[("dpkg-shlibdeps", "dpkg-dev")];
/// Programs that install a Debian package into a separate system, and check it.
pub(super) const DEBIAN_TESTS: &[(&str, &str)] = &[("debootstrap", "debootstrap"), ("lintian", "lintian")];

/// Programs that build an extension of Python in C++.
pub(super) const CPP: &[(&str, &str)] = &[("g++", "g++"), ("python3-config", "python3-dev")];

/// Programs that build container images without a Docker engine.
pub(super) const IMAGES: &[(&str, &str)] = &[("buildah", "buildah")];

/// Programs that run containers, and one that images are made from.
pub(super) const CONTAINERS: &[(&str, &str)] = &[("podman", "podman"), ("runc", "runc"), ("busybox", "busybox-static")];

/// PyTorch without CUDA, built for the system's Python. The wheels on PyPI contain CUDA, several gigabytes of it.
const TORCH: &str = "/usr/lib/python3/dist-packages/torch";

pub(super) fn missing_torch() -> Vec<&'static str> {
    (!Path::new(TORCH).is_dir()).then_some("python3-torch").into_iter().collect()
}

/// The packages of the programs that are missing.
pub(super) fn missing(programs: &[(&str, &'static str)]) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(program, _)| programs::system(program).is_none());
    missing.map(|(_, package)| *package).collect()
}

/// The package of Prometheus, which also has `promtool`.
pub(super) fn missing_prometheus() -> Vec<&'static str> {
    let is_missing = ["prometheus", "promtool"].iter().any(|program| programs::system(program).is_none());
    is_missing.then_some("prometheus").into_iter().collect()
}

/// Installs packages, as root or through `sudo` without a password.
pub(super) fn install(packages: &[&str], progress: &dyn Progress) -> Result<(), SetupError> {
    let listed = packages.join(" ");
    if programs::system("apt-get").is_none() {
        return Err(SetupError::NoApt { packages: listed });
    }
    let mut command = if state::is_root() {
        Command::new("sh")
    } else if sudo_asks_nothing() {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "sh"]);
        sudo
    } else {
        let command = format!("sudo apt-get update && sudo apt-get install --no-install-recommends {listed}");
        return Err(SetupError::NeedsRoot { packages: listed, command });
    };
    command.arg("-c").arg(SCRIPT.replace("LOCK", &LOCK_SECONDS.to_string())).arg("gpufleet-setup").args(packages);
    let what = format!("install {listed} with apt-get");
    progress.step(&what, || run(command, "apt-get install", progress))
}

fn sudo_asks_nothing() -> bool {
    let Some(sudo) = programs::system("sudo") else { return false };
    Command::new(sudo).args(["-n", "true"]).output().is_ok_and(|output| output.status.success())
}
