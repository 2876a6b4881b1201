//! The processes of a host program: a command of a user that runs on this machine with a whole device.
//!
//! For each program the supervisor starts a guard ([`handle`]). The guard ([`guard`]) makes the namespaces and the program's view of the
//! machine's files, and starts the init ([`init`]), the first process in the new PID namespace. The init gives up what the program may not
//! have, unpacks the user's files, runs the command, and packs what comes back. The guard reads the program's output. It passes the output
//! on to the supervisor, and keeps it in a file.
//!
//! | layer | closes | by |
//! | --- | --- | --- |
//! | processes | all others on the machine, and their `/proc` | PID namespace |
//! | files | all but the system's programs, the environment and the program's own files | Landlock, a mount namespace that is read-only |
//! | network | everything but its own loopback, unless the task may use it | network namespace |
//! | devices | all GPUs but the leased one | Landlock |
//! | privileges | root, capabilities, set-user-ID programs | another user or a user namespace, `no_new_privs` |
//! | the worker's secrets | its environment, memory and descriptors | a new environment, the guard, `/proc` of the namespace |
//!
//! A kernel without one of these layers runs no programs ([`support`]).
//!
//! For a program in a container, the guard starts the launcher ([`launcher`]) in place of the init. It is root in these namespaces, and has
//! podman make the container ([`podman`]). The init is below it, in a PID namespace that the container joins. It unpacks and packs the files,
//! signals the program, and is confined as ever. A container has podman's layers in place of the mount namespace and Landlock.
//!
//! ```text
//! supervisor ── guard ── launcher ─┬─ podman, conmon
//!                        │         └─ init ── command (conmon's child, in the init's PID namespace)
//!                        └ mounts and PID namespace, with podman's storage and state
//! ```
//!
//! The kernel limits memory and processes by a cgroup ([`cgroup`]) that the supervisor makes for each program.
//!
//! | event | result |
//! | --- | --- |
//! | the command ends | the init kills what is left, packs the files and exits |
//! | the supervisor stops the program | SIGTERM to its processes, SIGKILL after the grace period, then as above |
//! | the supervisor does not read | the program waits in `write` |
//! | the guard or the supervisor dies | the kernel kills the init, and with it everything in the namespace |
//! | the init dies | the kernel kills everything in the namespace; the guard reports it |

mod cgroup;
mod device;
mod environment;
mod guard;
mod handle;
mod init;
mod launcher;
mod message;
mod namespaces;
mod podman;
mod signals;
mod support;
mod view;

pub use self::{
    cgroup::{Cgroup, Cgroups, ProgramLimits},
    guard::{Args as GuardArgs, main as guard_main},
    handle::{HostError, HostProcess},
    init::{Args as InitArgs, main as init_main},
    launcher::{Args as LauncherArgs, main as launcher_main},
    message::{ContainerSpec, HostEvent, Place, ProgramSpec},
    podman::Podman,
    support::{Support, container_support, support, support_of},
};
