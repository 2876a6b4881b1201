//! What the ledger keeps of a host program: its command, its environment or image, and the names of its variables.

use serde::{Deserialize, Serialize};

use crate::{
    HostProgram,
    bounds::{COMMAND_WORDS_MAX, RECORDED_COMMAND_BYTES_MAX, RECORDED_NAMES_BYTES_MAX, VARIABLES_MAX},
    encoding::bounded,
    text::{recordable, recordable_within},
};

/// A host program as the ledger describes it. Values of variables are left out, because they may be secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostProgramInfo {
    /// The command and its arguments.
    #[serde(default, deserialize_with = "bounded::list::<_, _, COMMAND_WORDS_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = COMMAND_WORDS_MAX)))]
    pub command: Vec<String>,
    /// Whether the end of `command` is missing, because it is longer than what the ledger keeps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The environment of the worker; absent for a program in an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The container image; absent for a program in an environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether the program asks for the network.
    #[serde(default)]
    pub network: bool,
    /// The names of its environment variables.
    #[serde(default, deserialize_with = "bounded::list::<_, _, VARIABLES_MAX>")]
    #[cfg_attr(feature = "json-schema", schemars(length(max = VARIABLES_MAX)))]
    pub variables: Vec<String>,
}

impl HostProgramInfo {
    /// The description of a program for the ledger. The program may be invalid.
    pub fn of(program: &HostProgram) -> Self {
        let HostProgram { command, environment, image, variables, network, .. } = program;
        Self::cut(command, variables.keys(), environment.as_deref(), image.as_deref(), *network)
    }

    /// Returns the description within its bounds, whatever was reported.
    #[must_use]
    pub fn recordable(&self) -> Self {
        let (environment, image) = (self.environment.as_deref(), self.image.as_deref());
        let cut = Self::cut(&self.command, self.variables.iter(), environment, image, self.network);
        Self { is_cut: self.is_cut || cut.is_cut, ..cut }
    }

    /// The name of the environment or image in which the program runs.
    pub fn place(&self) -> Option<&str> {
        self.environment.as_deref().or(self.image.as_deref())
    }

    fn cut<'a>(
        command: &[String],
        variables: impl Iterator<Item = &'a String>,
        environment: Option<&str>,
        image: Option<&str>,
        network: bool,
    ) -> Self {
        let (command, is_cut) = within(command.iter(), RECORDED_COMMAND_BYTES_MAX);
        let (variables, _) = within(variables, RECORDED_NAMES_BYTES_MAX);
        let (environment, image) = (environment.map(recordable), image.map(recordable));
        Self { command, is_cut, environment, image, network, variables }
    }
}

/// Returns the texts from the first one on that have at most these bytes together, and whether something is missing.
fn within<'a>(texts: impl Iterator<Item = &'a String>, bytes_max: usize) -> (Vec<String>, bool) {
    /// What each text takes beside its bytes, in a message or in JSON.
    const EACH: usize = 4;
    let (mut kept, mut left) = (Vec::new(), bytes_max);
    for text in texts {
        if left <= EACH {
            return (kept, true);
        }
        let part = recordable_within(text, left - EACH);
        left -= EACH + part.len();
        let is_whole = part.chars().count() == text.chars().take(bytes_max).count();
        kept.push(part);
        if !is_whole {
            return (kept, true);
        }
    }
    (kept, false)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn program(command: Vec<String>) -> HostProgram {
        let variables = BTreeMap::from([("TOKEN".to_owned(), "canary".to_owned())]);
        let environment = Some("torch".to_owned());
        HostProgram { command, environment, image: None, variables, download: Vec::new(), network: true }
    }

    #[test]
    fn a_program_is_described_without_the_values_of_its_variables() {
        let info = HostProgramInfo::of(&program(vec!["python".to_owned(), "train.py".to_owned()]));
        assert_eq!(info.command, ["python", "train.py"]);
        assert_eq!((info.place(), info.network, info.is_cut), (Some("torch"), true, false));
        assert_eq!(info.variables, ["TOKEN"]);
        assert!(!serde_json::to_string(&info).unwrap().contains("canary"));
        assert_eq!(info.recordable(), info);
    }

    #[test]
    fn a_long_command_is_cut_and_says_so() {
        let long =
            [vec!["sh".to_owned(), "\u{1b}".repeat(9 << 20)], vec!["x".to_owned(); 5000], vec!["é".repeat(4096)]];
        for command in long {
            let info = HostProgramInfo::of(&program(command));
            let bytes: usize = info.command.iter().map(String::len).sum();
            assert!(info.is_cut && bytes <= RECORDED_COMMAND_BYTES_MAX, "{bytes} bytes");
            assert!(info.command.iter().all(|word| !word.contains(char::is_control)));
            assert_eq!(info.recordable(), info, "it stays as it is");
        }
    }
}
