//! What clap suggests for a mistyped command, option or value. clap compares words loosely, so that `ps` is like `permissions`; this keeps only
//! suggestions that a slip explains, and adds the commands that other programs know by another name.

use clap::{
    Error,
    error::{ContextKind, ContextValue},
};
use gpufleet_kernels::spelling;

/// Commands of other programs, and what they are here.
const OTHER_NAMES: [(&[&str], &str); 8] = [
    (&["exec", "launch", "sbatch"], "submit"),
    (&["srun", "salloc"], "run"),
    (&["ls", "list", "ps", "jobs", "squeue", "sacct"], "history"),
    (&["describe", "info", "inspect", "status"], "show"),
    (&["kill", "scancel", "delete", "rm", "stop"], "cancel"),
    (&["nodes", "sinfo", "devices", "gpus"], "workers"),
    (&["queue", "queues"], "pools"),
    (&["check", "diagnose", "ping"], "doctor"),
];

/// Pairs of what was typed and what clap suggests for it.
const SUGGESTIONS: [(ContextKind, ContextKind); 3] = [
    (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    (ContextKind::InvalidValue, ContextKind::SuggestedValue),
];

/// Replaces the suggestions of an error. `first` is the first argument of the command line.
pub fn correct(error: &mut Error, first: Option<&str>) {
    for (typed, suggested) in SUGGESTIONS {
        let Some(ContextValue::String(typed)) = error.get(typed).cloned() else { continue };
        let mut kept = names(error.remove(suggested));
        kept.retain(|name| is_misspelt(&typed, name));
        let is_command = suggested == ContextKind::SuggestedSubcommand && first == Some(&typed);
        kept.extend(other_name(&typed).filter(|_| is_command && kept.is_empty()).map(str::to_owned));
        let Some(best) = kept.first().cloned() else { continue };
        let value = match suggested {
            ContextKind::SuggestedSubcommand => ContextValue::Strings(kept),
            _ => ContextValue::String(best),
        };
        error.insert(suggested, value);
    }
}

fn names(suggested: Option<ContextValue>) -> Vec<String> {
    match suggested {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    }
}

fn is_misspelt(typed: &str, name: &str) -> bool {
    let [typed, name] = [typed, name].map(|word| word.trim_start_matches('-'));
    spelling::closest(typed, std::iter::once(name)).is_some()
}

fn other_name(typed: &str) -> Option<&'static str> {
    OTHER_NAMES.into_iter().find(|(others, _)| others.contains(&typed)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    /// What the error about these arguments suggests.
    fn suggested(arguments: &str) -> Vec<String> {
        let words: Vec<&str> = arguments.split(' ').collect();
        let mut error = command().try_get_matches_from([&["gpufleet"], &words[..]].concat()).unwrap_err();
        correct(&mut error, words.first().copied());
        SUGGESTIONS.iter().flat_map(|(_, suggested)| names(error.get(*suggested).cloned())).collect()
    }

    #[test]
    fn a_slip_is_corrected() {
        for (typed, expected) in [
            ("sumbit", "submit"),
            ("kernel", "kernels"),
            ("doctr", "doctor"),
            ("retyr", "retry"),
            ("local upp", "up"),
            ("history --stat failed", "--state"),
            ("submit saxpy --priorty high", "--priority"),
            ("submit saxpy --argz a=1", "--arg"),
            ("history -o jsn", "json"),
            ("permissions --role produccer", "producer"),
        ] {
            assert_eq!(suggested(typed), [expected], "{typed}");
        }
    }

    #[test]
    fn a_word_that_only_looks_a_little_like_a_command_is_not_taken_for_it() {
        for typed in ["version", "login", "start", "foo", "local xyz", "history -o xml", "submit saxpy --zzz"] {
            assert_eq!(suggested(typed), [""; 0], "{typed}");
        }
    }

    #[test]
    fn a_command_of_another_program_leads_to_ours() {
        for (typed, expected) in
            [("ps", "history"), ("jobs", "history"), ("sbatch", "submit"), ("srun", "run"), ("kill", "cancel")]
        {
            assert_eq!(suggested(typed), [expected], "{typed}");
        }
        assert_eq!(suggested("local ps"), [""; 0]);
    }
}
