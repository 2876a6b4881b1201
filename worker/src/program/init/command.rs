//! Starts the command of a program.

use std::{
    io::{self, stdout},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, setsid};

use crate::program::{
    message::{InitSpec, Place},
    signals,
};

/// Starts the command in the current folder. On failure it returns a sentence for the user.
pub(super) fn spawn(spec: &InitSpec) -> Result<Pid, String> {
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err("the command is empty; name a program".to_owned());
    };
    let Place::Environment(environment) = &spec.place else { return Err("a container starts its command".to_owned()) };
    start(program, arguments, spec).map_err(|error| refusal(program, environment, &error))
}

fn start(program: &str, arguments: &[String], spec: &InitSpec) -> io::Result<Pid> {
    // Both go to one pipe, so that their order is kept.
    let errors = stdout().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&spec.variables);
    command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(errors);
    let prepare = || {
        setsid()?;
        signals::restore();
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe { command.pre_exec(prepare) };
    // The init reaps all children itself.
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

fn refusal(program: &str, environment: &Path, error: &io::Error) -> String {
    let is_path = program.contains('/');
    match error.kind() {
        io::ErrorKind::NotFound if is_path => format!(
            "failed to start {program:?}: the file or the interpreter in its first line does not exist on the worker; upload it, or name a \
             program of the environment"
        ),
        io::ErrorKind::NotFound => format!(
            "failed to start {program:?}: command not found in the environment ({}) or /usr/bin; install it in the environment, or upload \
             it and start it as ./{program}",
            environment.join("bin").display()
        ),
        io::ErrorKind::PermissionDenied => format!(
            "failed to start {program:?}: it is not executable, or not in a folder that programs can use; set its executable bit (chmod \
             +x), or start it with its interpreter"
        ),
        _ => format!("failed to start {program:?}: {error}; check the command"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let refuse = |program, kind: io::ErrorKind| refusal(program, Path::new("/envs/torch"), &kind.into());
        let missing = refuse("pyton", io::ErrorKind::NotFound);
        assert!(missing.contains("command not found in the environment (/envs/torch/bin) or /usr/bin; "), "{missing}");
        assert!(refuse("./train.sh", io::ErrorKind::NotFound).contains("upload it"));
        assert!(refuse("./train.sh", io::ErrorKind::PermissionDenied).contains("chmod +x"));
        assert!(refuse("x\0", io::ErrorKind::InvalidInput).contains("check the command"));
    }
}
