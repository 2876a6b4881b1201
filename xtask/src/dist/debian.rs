//! The Debian package: all programs, and systemd units for the services.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::Context as _;
use tokio::process::Command;

use super::files::{COMMAND, DRIVER, Programs, install, of_project, write};
use crate::workspace::{self, output_of};

const PROGRAMS: [&str; 5] = [COMMAND, "gpufleet-worker", "gpufleet-ledger", "gpufleet-console", "gpufleet-local-s3"];
/// The emulator's library. A worker looks for it in the folder of its own program.
const EMULATOR: &str = "libgpufleet_emulator.so";
/// The folder of the programs and the libraries. `/usr/bin` has links to the programs. Other programs can't link with the libraries there.
const FOLDER: &str = "usr/lib/gpufleet";
/// The services. Each has a systemd unit.
const SERVICES: [&str; 4] = ["worker", "recorder", "api", "console"];
/// The settings files, which contain passwords.
const SETTINGS: [&str; 4] = ["worker", "ledger", "api", "console"];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub async fn build(programs: &Programs, packages: &Path) -> anyhow::Result<()> {
    let stage = tempfile::tempdir().context("failed to create a folder for the package")?;
    let root = stage.path();
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin).context("failed to create usr/bin")?;
    for program in PROGRAMS {
        install(&programs.path(program), &root.join(FOLDER).join(program), 0o755)?;
        symlink(Path::new("../lib/gpufleet").join(program), bin.join(program))
            .with_context(|| format!("failed to link {program}"))?;
    }
    for library in [EMULATOR, DRIVER] {
        let installed = root.join(FOLDER).join(library);
        install(&programs.path(library), &installed, 0o644)?;
        // Removes the names of functions, which cargo leaves in a library.
        let mut strip = tool("strip", &["--strip-unneeded"]);
        strip.arg(installed);
        workspace::run(strip).await?;
    }
    programs.describe_command(&root.join("usr/share")).await?;
    install_services(root)?;
    install_documents(root).await?;
    let architecture = output_of(tool("dpkg", &["--print-architecture"])).await?.trim().to_owned();
    let control = control(&architecture, &dependencies(root).await?)?;
    write(&root.join("DEBIAN/control"), control, 0o644)?;
    let conffiles: String = SETTINGS.iter().map(|name| format!("/etc/gpufleet/{name}.env\n")).collect();
    write(&root.join("DEBIAN/conffiles"), conffiles, 0o644)?;
    for script in SCRIPTS {
        install(&of_project("deploy/debian").join(script), &root.join("DEBIAN").join(script), 0o755)?;
    }
    let name = format!("gpufleet_{}_{architecture}.deb", env!("CARGO_PKG_VERSION"));
    let mut pack = tool("dpkg-deb", &["--root-owner-group", "--build"]);
    pack.arg(root).arg(packages.join(name));
    workspace::run(pack).await
}

fn install_services(root: &Path) -> anyhow::Result<()> {
    for service in SERVICES {
        let unit = format!("gpufleet-{service}.service");
        install(&of_project("deploy/systemd").join(&unit), &root.join("usr/lib/systemd/system").join(&unit), 0o644)?;
    }
    install(&of_project("deploy/systemd/gpufleet.sysusers"), &root.join("usr/lib/sysusers.d/gpufleet.conf"), 0o644)?;
    for settings in SETTINGS {
        let file = format!("{settings}.env");
        install(&of_project("deploy/debian").join(&file), &root.join("etc/gpufleet").join(&file), 0o600)?;
    }
    Ok(())
}

/// Installs the licence, the changelog and the man pages. Debian wants the last two compressed.
async fn install_documents(root: &Path) -> anyhow::Result<()> {
    let read = |path: &str| fs::read_to_string(of_project(path)).with_context(|| format!("failed to read {path}"));
    let license = read("LICENSE-MIT")?;
    let license: Vec<String> =
        license.lines().map(|line| format!(" {}", if line.is_empty() { "." } else { line })).collect();
    let copyright = read("deploy/debian/copyright")?.replace("@MIT@", &license.join("\n"));
    let documents = root.join("usr/share/doc/gpufleet");
    write(&documents.join("copyright"), copyright, 0o644)?;
    install(&of_project("CHANGELOG.md"), &documents.join("CHANGELOG.md"), 0o644)?;
    let mut compress = tool("gzip", &["--best", "--no-name", "--recursive"]);
    compress.arg(documents.join("CHANGELOG.md")).arg(root.join("usr/share/man"));
    workspace::run(compress).await
}

/// Returns the packages with the libraries that the programs are linked with, and their minimum versions.
async fn dependencies(root: &Path) -> anyhow::Result<String> {
    // dpkg-shlibdeps needs the control file of a source package.
    let source = tempfile::tempdir().context("failed to create a folder for dpkg-shlibdeps")?;
    write(&source.path().join("debian/control"), "Source: gpufleet\n\nPackage: gpufleet\nArchitecture: any\n", 0o644)?;
    let mut find = tool("dpkg-shlibdeps", &["-O"]);
    find.args(PROGRAMS.iter().map(|program| root.join(FOLDER).join(program)));
    find.args([EMULATOR, DRIVER].map(|library| root.join(FOLDER).join(library))).current_dir(source.path());
    let found = output_of(find).await?;
    let dependencies = found.trim().strip_prefix("shlibs:Depends=");
    dependencies.map(str::to_owned).with_context(|| format!("dpkg-shlibdeps printed {found:?}"))
}

fn control(architecture: &str, dependencies: &str) -> anyhow::Result<String> {
    let template =
        fs::read_to_string(of_project("deploy/debian/control")).context("failed to read deploy/debian/control")?;
    Ok(template
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@ARCHITECTURE@", architecture)
        .replace("@DEPENDS@", dependencies))
}

fn tool(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
