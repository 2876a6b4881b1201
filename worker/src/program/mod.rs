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
//! | event | result |
//! | --- | --- |
//! | the command ends | the init kills what is left, packs the files and exits |
//! | the supervisor stops the program | SIGTERM to its processes, SIGKILL after the grace period, then as above |
//! | the supervisor does not read | the program waits in `write` |
//! | the guard or the supervisor dies | the kernel kills the init, and with it everything in the namespace |
//! | the init dies | the kernel kills everything in the namespace; the guard reports it |

mod device;
mod environment;
mod guard;
mod handle;
mod init;
mod message;
mod namespaces;
mod support;
mod view;

pub use self::{
    guard::{Args as GuardArgs, main as guard_main},
    handle::{HostError, HostProcess},
    init::{Args as InitArgs, main as init_main},
    message::{HostEvent, ProgramSpec},
    support::{Support, support, support_of},
};
