//! Host programs: commands that run on the worker's machine with a whole device, as `sbatch` runs them.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::{Deserialize, Serialize};

use crate::{
    Buffer, Dtype, Invalid, Task,
    bounds::{COMMAND_BYTES_MAX, COMMAND_WORDS_MAX, DOWNLOADS_MAX, VARIABLES_MAX},
    check::{check_text, invalid},
    encoding::bounded,
};

/// The kind of a host program ([`Program::kind`](crate::Program::kind)).
pub const KIND: &str = "host";
/// The buffer with a tar archive of the files that the program finds in its working directory: bytes in one dimension.
pub const UPLOAD: &str = "upload";
/// The output with a tar archive of the files that come back.
pub const FILES: &str = "files";
/// The output with all that the program has written to its standard output and standard error, if the reply has only the end of it.
pub const LOG: &str = "log";

/// A command and what it needs. The message's routing key is [`program_key`](crate::topology::program_key).
///
/// Its files are the task's buffer [`UPLOAD`]. Its outputs are [`FILES`], if it names files to bring back, and [`LOG`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct HostProgram {
    /// The command and its arguments. The command is looked up in the environment's folder `bin` and then in the system's folders, or in the
    /// folders of the image's `PATH`.
    #[serde(deserialize_with = "bounded::list::<_, _, COMMAND_WORDS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(min = 1, max = COMMAND_WORDS_MAX)))]
    pub command: Vec<String>,
    /// The name of an environment that the worker offers: a folder with the programs and libraries of a virtual environment. A program has
    /// either this or `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The name of a container image that the worker offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Environment variables of the command.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded::map::<_, _, VARIABLES_MAX>"
    )]
    #[cfg_attr(feature = "json-schema", schemars(extend("maxProperties" = VARIABLES_MAX)))]
    pub variables: BTreeMap<String, String>,
    /// Globs of the files that come back, relative to the working directory, such as `out/**`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, DOWNLOADS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = DOWNLOADS_MAX)))]
    pub download: Vec<String>,
    /// Whether the program needs the network. Pools allow it or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
}

impl HostProgram {
    /// The command as people know it, such as `python train.py`.
    pub fn label(&self) -> String {
        self.command.join(" ")
    }

    /// Checks the program and the rest of its task, which runs no kernels.
    pub(crate) fn check(&self, task: &Task<'_>) -> Result<(), Invalid> {
        self.check_command()?;
        self.check_place()?;
        self.check_variables()?;
        if self.download.len() > DOWNLOADS_MAX {
            return invalid("program.host.download", format!("too many patterns; the maximum is {DOWNLOADS_MAX}"));
        }
        for (index, pattern) in self.download.iter().enumerate() {
            check_pattern(index, pattern)?;
        }
        match task.buffers.as_slice() {
            [] => {}
            [upload] if is_upload(upload) => {}
            _ => {
                let problem =
                    format!("a host program takes at most one, {UPLOAD:?}: a tar archive as bytes in one dimension");
                return invalid("buffers", problem);
            }
        }
        if !task.launches.is_empty() {
            return invalid("launches", "a host program launches nothing by itself; its command does");
        }
        if !task.outputs.is_empty() {
            return invalid("outputs", "a host program names the files that come back in program.host.download");
        }
        Ok(())
    }

    /// Checks that the program names an environment or an image.
    fn check_place(&self) -> Result<(), Invalid> {
        let (field, name, what) = match (&self.environment, &self.image) {
            (Some(environment), None) => ("program.host.environment", environment, "an environment"),
            (None, Some(image)) => ("program.host.image", image, "an image"),
            (None, None) => {
                let problem = "missing; name an environment or, in image, an image that the pool's workers offer";
                return invalid("program.host.environment", problem);
            }
            (Some(_), Some(_)) => {
                return invalid(
                    "program.host.image",
                    "a program runs in an environment or in an image; name one of them",
                );
            }
        };
        check_text(format_args!("{field}"), name)?;
        if name.is_empty() {
            return invalid(field, format!("empty; name {what} that the pool's workers offer"));
        }
        Ok(())
    }

    fn check_command(&self) -> Result<(), Invalid> {
        let field = "program.host.command";
        match self.command.first() {
            None => return invalid(field, "empty; name the program to run"),
            Some(program) if program.is_empty() => return invalid(field, "the name of the program is empty"),
            Some(_) => {}
        }
        if self.command.len() > COMMAND_WORDS_MAX {
            return invalid(field, format!("too many words; the maximum is {COMMAND_WORDS_MAX}"));
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return invalid(field, "contains a NUL character");
        }
        let bytes: usize = self.command.iter().map(|word| word.len() + 1).sum();
        if bytes > COMMAND_BYTES_MAX {
            return invalid(field, format!("{bytes} bytes long; the maximum is {COMMAND_BYTES_MAX}"));
        }
        Ok(())
    }

    fn check_variables(&self) -> Result<(), Invalid> {
        let field = "program.host.variables";
        if self.variables.len() > VARIABLES_MAX {
            return invalid(field, format!("too many variables; the maximum is {VARIABLES_MAX}"));
        }
        for (name, value) in &self.variables {
            if name.is_empty() || name.contains(['=', '\0']) {
                return invalid(field, format!("{name:?} can't be the name of an environment variable"));
            }
            if value.contains('\0') {
                return invalid(field, format!("the value of {name} contains a NUL character"));
            }
        }
        let bytes: usize = self.variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if bytes > COMMAND_BYTES_MAX {
            return invalid(field, format!("{bytes} bytes long; the maximum is {COMMAND_BYTES_MAX}"));
        }
        Ok(())
    }
}

fn is_upload(buffer: &Buffer<'_>) -> bool {
    buffer.name == UPLOAD && buffer.dtype == Dtype::U8 && buffer.shape.len() == 1
}

fn check_pattern(index: usize, pattern: &str) -> Result<(), Invalid> {
    let field = format!("program.host.download[{index}]");
    check_text(format_args!("{field}"), pattern)?;
    if pattern.is_empty() {
        return invalid(field, "empty");
    }
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return invalid(field, format!("{pattern:?} leaves the working directory"));
    }
    Ok(())
}

/// Returns whether a path that is followed from a folder stays inside the folder of files. `from` is relative to the folder of files. The
/// answer does not consider links on the way.
pub fn stays_inside(from: &Path, path: &Path) -> bool {
    let mut depth = from.components().filter(|component| matches!(component, Component::Normal(_))).count();
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, Program};

    fn program(command: &[&str]) -> HostProgram {
        HostProgram {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            environment: Some("torch".to_owned()),
            image: None,
            variables: BTreeMap::new(),
            download: Vec::new(),
            network: false,
        }
    }

    fn problem(change: impl FnOnce(&mut HostProgram)) -> String {
        let mut program = program(&["python", "train.py"]);
        change(&mut program);
        Task::new(Program::Host(program)).check().unwrap_err().to_string()
    }

    #[test]
    fn a_command_with_an_environment_is_valid() {
        let host = program(&["python", "train.py"]);
        assert_eq!(host.label(), "python train.py");
        let upload = Buffer::new(UPLOAD, Dtype::U8, vec![3], Data::Inline(vec![1_u8, 2, 3].into()));
        let task = Task { buffers: vec![upload], ..Task::new(Program::Host(host.clone())) };
        assert_eq!(task.check(), Ok(()));
        let in_image = HostProgram { environment: None, image: Some("torch:2".to_owned()), ..host };
        assert_eq!(Task::new(Program::Host(in_image)).check(), Ok(()));
    }

    #[test]
    fn an_invalid_field_is_named() {
        let cases = [
            (problem(|program| program.command.clear()), "program.host.command: empty"),
            (problem(|program| program.command[0].clear()), "the name of the program is empty"),
            (problem(|program| program.command.push("a\0".to_owned())), "NUL"),
            (problem(|program| program.command.push("x".repeat(COMMAND_BYTES_MAX))), "the maximum is"),
            (problem(|program| program.environment = Some(String::new())), "program.host.environment: empty"),
            (problem(|program| program.environment = None), "program.host.environment: missing"),
            (problem(|program| program.image = Some("torch:2".to_owned())), "name one of them"),
            (
                problem(|program| (program.environment, program.image) = (None, Some(String::new()))),
                "program.host.image: empty",
            ),
            (problem(|program| _ = program.variables.insert("A=B".to_owned(), String::new())), "environment variable"),
            (problem(|program| program.download.push("../secret".to_owned())), "leaves the working directory"),
            (problem(|program| program.download.push("/etc/*".to_owned())), "leaves the working directory"),
        ];
        for (found, expected) in cases {
            assert!(found.contains(expected), "{found}");
        }
        let other = Buffer::new("x", Dtype::U8, vec![3], Data::Zeros);
        let task = Task { buffers: vec![other], ..Task::new(Program::Host(program(&["true"]))) };
        assert!(task.check().unwrap_err().to_string().contains("\"upload\""));
    }

    #[test]
    fn a_path_may_go_up_as_far_as_the_folder_of_files() {
        let inside = |from: &str, path: &str| stays_inside(Path::new(from), Path::new(path));
        assert!(inside("", "a/b") && inside("", "./a") && inside("a/b", "../../c") && inside("", "a/.."));
        assert!(!inside("", "..") && !inside("", "/a") && !inside("a/b", "../../../c") && !inside("", "a/../../a"));
    }
}
