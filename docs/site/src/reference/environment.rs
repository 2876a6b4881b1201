//! `environment.md`: every variable, those of options from their definitions and the others from the tables here. A check finds
//! variables that the code reads and no table has.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use clap::Command;

use super::{
    markdown::{table, wrapped},
    programs,
};
use crate::page;

/// A variable that is no option of a command.
type Variable = (&'static str, &'static str);

const PROGRAMS: [Variable; 13] = [
    (
        "GPUFLEET_CONFIG",
        "`gpufleet`, Python: the configuration file with the profiles, in place of `~/.config/gpufleet/config.toml`.",
    ),
    (
        "GPUFLEET_LOG",
        "every program: what is logged to stderr, as a tracing filter such as `info` or `gpufleet_worker=debug`. Unset: `info`, for the worker's libraries `warn`, and nothing for `gpufleet`.",
    ),
    ("GPUFLEET_POOLS", "`gpufleet-worker`: the former name of `GPUFLEET_POOL`. A worker does not start with it."),
    (
        "GPUFLEET_NVRTC",
        "`gpufleet-worker`: the NVRTC library, or the folder that holds it. Unset: the places where `gpufleet local setup`, PyPI packages and NVIDIA's packages put it.",
    ),
    (
        "GPUFLEET_EMULATOR_LIB",
        "`gpufleet-worker`: the emulated device's library. Unset: beside the program, or in the `lib` folder of its installation.",
    ),
    (
        "GPUFLEET_LOCAL_DIR",
        "`gpufleet`: where every command without `--amqp-url` or `--database-url` looks for the local fleet. Unset: `gpufleet/local` in `XDG_STATE_HOME`.",
    ),
    (
        "GPUFLEET_BIN_DIR",
        "`gpufleet local`: the folder that holds gpufleet's other programs. Unset: beside `gpufleet`, then `PATH`.",
    ),
    (
        "GPUFLEET_ON_WORKER",
        "programs of [`gpufleet run --on-worker`](../guides/host-programs.md): `1`. The worker sets it.",
    ),
    (
        "GPUFLEET_SESSION_SOCKET",
        "the driver library of [sessions](../guides/sessions.md): the socket of the session. `gpufleet run` sets it.",
    ),
    (
        "GPUFLEET_SESSION_SYNC",
        "the driver library of sessions: `1` makes each driver call wait for its answer, so that a failing call is known at once.",
    ),
    ("NO_COLOR", "`gpufleet`: no colours if set to anything but the empty text."),
    ("TERM", "`gpufleet`: no progress display if it is `dumb`."),
    ("USER", "`gpufleet`: who cancelled a job or drained a worker, for people to read. `LOGNAME` if it is unset."),
];

const EMULATED: [Variable; 10] = [
    ("GPUFLEET_EMULATOR_DEVICES", "Number of devices, 1 to 64. Default: 1."),
    ("GPUFLEET_EMULATOR_MEMORY", "Memory of each device, as in `512MiB`; from 1 MiB to 1024 GiB. Default: 2 GiB."),
    (
        "GPUFLEET_EMULATOR_SLICES",
        "Slices that each device is divided into, as in MIG mode, 0 to 7. Default: 0, a whole device.",
    ),
    ("GPUFLEET_EMULATOR_COMPUTE_CAPABILITY", "Compute capability, from `5.0` to `12.9`. Default: `8.0`."),
    ("GPUFLEET_EMULATOR_THREADS", "Threads of the host that run one kernel. Default: one for each core."),
    (
        "GPUFLEET_EMULATOR_INSTRUCTIONS_MAX",
        "Instructions of one warp after which a launch is ended as endless. Unset: no limit.",
    ),
    (
        "GPUFLEET_EMULATOR_CHECKS",
        "Extra checks, separated by commas: `races` in shared memory, `uninitialised` reads. Unset: none.",
    ),
    (
        "GPUFLEET_EMULATOR_CLOCK",
        "A file whose first eight bytes are the nanoseconds by which the clock of kernels is ahead. A test that writes them ends kernels that \
         wait. Unset: the clock starts at 0.",
    ),
    (
        "GPUFLEET_EMULATOR_PROTECTION",
        "`off`: memory can't be made read-only for kernels, and kernels reach all jobs' memory, as on a GPU. Default: `on`.",
    ),
    (
        "GPUFLEET_EMULATOR_FAULTS",
        "Faults to inject, as in `launch:7=illegal-address,alloc:3=out-of-memory`. Unset: none.",
    ),
];

const SYSTEM: [Variable; 11] = [
    ("SSL_CERT_FILE", "A file of trusted certificates, in place of the system's, for TLS to the broker."),
    ("SSL_CERT_DIR", "A folder of trusted certificates, for the same."),
    (
        "CUDA_VISIBLE_DEVICES",
        "The devices that a worker may see, as for every CUDA program. The emulated device honours it too.",
    ),
    (
        "CUDA_MPS_PIPE_DIRECTORY",
        "Set where NVIDIA's MPS serves the device; several pools then share an exclusive device.",
    ),
    (
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "Hardware queues of a device. Unset: two more than `--jobs-per-device`, at least 8 and at most 32.",
    ),
    ("LD_LIBRARY_PATH", "Passed on to executors and to the compiler."),
    ("CACHE_DIRECTORY", "Set by systemd: the worker's cache of compiled programs is `modules` in it."),
    ("XDG_CACHE_HOME", "Where NVRTC is installed and compiled programs are cached. Unset: `.cache` in `HOME`."),
    (
        "XDG_STATE_HOME",
        "Where the local fleet keeps its data. Unset: `.local/state` in `HOME`, and `/var/lib` for root.",
    ),
    ("NOTIFY_SOCKET", "Set by systemd: the worker reports that it is ready, that it lives, and that it stops."),
    ("WATCHDOG_USEC", "Set by systemd: how often the worker must report that it lives."),
];

const DEVELOPMENT: [Variable; 5] = [
    ("GPUFLEET_LOCAL_STATE", "Marks the processes of a local fleet; `gpufleet local` sets it."),
    ("GPUFLEET_WORKER_DIES", "Debug builds only: where a worker ends itself in a test, as in `after-reply:3`."),
    ("GPUFLEET_LOCAL_PAIRS", "`cargo xtask test`: kills every pair of a local fleet's services instead of some."),
    ("GPUFLEET_SCENARIO_NODES", "`cargo xtask test`: runs the scenarios on a RabbitMQ cluster of this many nodes."),
    ("GPUFLEET_GOLDEN", "Tests of the contract: `write` adds missing golden files."),
];

/// Folders whose code is part of what users run. Tests may read what they like.
const SOURCES: [&str; 16] = [
    "schema",
    "kernels",
    "transport",
    "submitter/client",
    "submitter/command",
    "worker",
    "surface",
    "emulator",
    "emulator/conformance",
    "remote",
    "remote/driver",
    "remote/session",
    "ledger",
    "console",
    "local",
    "xtask",
];
const PREFIX: &str = "GPUFLEET_";
/// Beginnings of names, by which the code passes on or removes variables.
const BEGINNINGS: [&str; 3] = [PREFIX, "GPUFLEET_EMULATOR", "GPUFLEET_EMULATOR_"];
/// Variables by which a test tells its own child process what it is.
const OF_TESTS: &str = "_TEST";

pub fn page() -> String {
    let intro = "An option on the command line wins over its variable; [Command line](cli.md) describes the options. Variables keep passwords out of process lists. \
                 `gpufleet local` removes all `GPUFLEET_` variables from the fleet's processes, except those of the emulated device, \
                 `GPUFLEET_NVRTC`, `GPUFLEET_LOG` and `GPUFLEET_LOG_FORMAT`.";
    let rows = of_options()
        .into_iter()
        .map(|(name, option)| [format!("`{name}`"), format!("`{}`", option.spelling), readers(&option.commands)]);
    format!(
        "# Environment variables\n\n{}\n\n## Options\n\n{}\n## Programs\n\n{}\n## The emulated device\n\n{}\n\
         ## Variables of the system\n\n{}\n## Development\n\n{}",
        wrapped(intro, ""),
        table(["variable", "option", "commands"], rows),
        plain(&PROGRAMS),
        plain(&EMULATED),
        plain(&SYSTEM),
        plain(&DEVELOPMENT)
    )
}

fn plain(variables: &[Variable]) -> String {
    table(["variable", "meaning"], variables.iter().map(|(name, meaning)| [format!("`{name}`"), (*meaning).to_owned()]))
}

/// The commands, or of a program with many only their number.
fn readers(commands: &BTreeSet<String>) -> String {
    const NAMED_MAX: usize = 3;
    let mut programs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for command in commands {
        programs.entry(command.split(' ').next().unwrap_or_default()).or_default().push(command);
    }
    let texts = programs.into_iter().flat_map(|(program, commands)| match commands.len() {
        ..=NAMED_MAX => commands.into_iter().map(|command| format!("`{command}`")).collect(),
        many => vec![format!("{many} commands of `{program}`")],
    });
    texts.collect::<Vec<_>>().join(", ")
}

struct Optional {
    spelling: String,
    commands: BTreeSet<String>,
}

/// The variables that options have, with the commands that have them.
fn of_options() -> BTreeMap<String, Optional> {
    let mut found = BTreeMap::new();
    for mut program in programs() {
        program.build();
        collect(&program, &mut found);
    }
    found
}

fn collect(command: &Command, found: &mut BTreeMap<String, Optional>) {
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let Some(variable) = arg.get_env() else { continue };
        let entry = found.entry(variable.to_string_lossy().into_owned()).or_insert_with(|| Optional {
            spelling: format!("--{}", arg.get_long().unwrap_or_default()),
            commands: BTreeSet::new(),
        });
        entry.commands.insert(command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned());
    }
    command.get_subcommands().filter(|it| !it.is_hide_set()).for_each(|it| collect(it, found));
}

/// Variables that the code names and the page lacks, and those of the page that no code names.
pub fn faults(root: &Path) -> anyhow::Result<Vec<String>> {
    let (named, page) = (named_in_code(root)?, page());
    let missing = named.iter().filter(|name| !page.contains(&format!("`{name}`")));
    let missing = missing.map(|name| {
        format!("docs/src/reference/environment.md: the code reads {name}; add it to a table of docs/site/src/reference/environment.rs")
    });
    let ours = [&PROGRAMS[..], &EMULATED, &SYSTEM, &DEVELOPMENT].concat().into_iter().map(|(name, _)| name);
    let stale = ours.filter(|name| name.starts_with(PREFIX) && *name != "GPUFLEET_GOLDEN" && !named.contains(*name));
    let stale = stale.map(|name| format!("docs/src/reference/environment.md: no code reads {name}"));
    Ok(missing.chain(stale).collect())
}

fn named_in_code(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in SOURCES {
        for path in page::files(&root.join(folder).join("src"), "rs")? {
            names.extend(literals(&page::read(&path)?));
        }
    }
    Ok(names)
}

/// The string literals that are nothing but one of our variables' names.
fn literals(text: &str) -> impl Iterator<Item = String> {
    let is_name =
        |text: &&str| text.starts_with(PREFIX) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_ours = |text: &&str| !BEGINNINGS.contains(text) && !text.contains(OF_TESTS);
    text.split('"').filter(is_name).filter(is_ours).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::reference::tests::root;

    #[test]
    fn the_page_has_every_variable_that_the_code_reads_and_no_other() {
        assert_eq!(faults(&root()).unwrap(), [] as [String; 0]);
        assert!(named_in_code(&root()).unwrap().len() > 25);
    }

    #[test]
    fn a_variable_that_the_page_lacks_is_found_in_code() {
        let folder = tempfile::tempdir().unwrap();
        for source in SOURCES {
            fs::create_dir_all(folder.path().join(source).join("src/inner")).unwrap();
        }
        let code = "fn f() { env::var(\"GPUFLEET_NEW_THING\"); other(\"GPUFLEET_\", \"set GPUFLEET_POOL\"); }";
        fs::write(folder.path().join("worker/src/inner/f.rs"), code).unwrap();
        let faults = faults(folder.path()).unwrap();
        assert!(faults.iter().any(|fault| fault.contains("the code reads GPUFLEET_NEW_THING")), "{faults:#?}");
        assert!(faults.iter().any(|fault| fault.contains("no code reads GPUFLEET_NVRTC")), "{faults:#?}");
    }
}
