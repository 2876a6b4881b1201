//! The commands by what they are for, in the help of `gpufleet`.

use clap::Command;

const GROUPS: [(&str, &[&str]); 4] = [
    ("Run jobs", &["submit", "map", "run", "notebook", "wait", "fetch", "cancel", "rerun", "retry"]),
    ("Look at jobs", &["history", "show", "logs", "why", "report", "export", "stats", "usage"]),
    ("Look after a fleet", &["pools", "workers", "top", "doctor", "dead", "actions"]),
    ("Set up", &["local", "init", "kernels", "blobs", "keygen", "permissions", "completions", "man", "help"]),
];

/// clap adds this command when it parses.
const HELP: &str = "Print this message or the help of a command";

/// The command, whose help lists its subcommands in groups.
pub fn grouped(command: Command) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups.push_str(&format!("{header}{title}:{header:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(|| HELP.to_owned(), ToString::to_string);
            groups.push_str(&format!("  {literal}{name:<11}{literal:#}  {about}\n"));
        }
        groups.push('\n');
    }
    let options = format!("{header}Options:{header:#}\n{{options}}");
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{options}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::command_line::Options;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = Options::command();
        command.build();
        let all: BTreeSet<&str> =
            command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len(), "none is in two groups");
    }
}
