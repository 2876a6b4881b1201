//! `cli.md`: every command and option of the four programs, from their definitions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use clap::{Arg, Command};

use super::{
    markdown::{code, escaped, wrapped},
    programs,
};

/// The heading of the options that many commands have.
const COMMON: &str = "Common options";
/// An option of so many commands is described once.
const COMMON_FROM: usize = 3;

/// The page without its first line.
pub fn page() -> String {
    let intro = "`--help` also has examples, and more on each option. [Environment variables](environment.md), \
                 [exit codes](exit-codes.md) and [JSON shapes](json-shapes.md) have their own pages.";
    let mut page = format!("# Command line\n\n{}\n", wrapped(intro, ""));
    let programs: Vec<Command> = programs().into_iter().map(built).collect();
    let common = common(&programs);
    page.push_str(&format!("\n## {COMMON}\n\n"));
    common.iter().for_each(|item| page.push_str(item));
    for program in &programs {
        write_command(&mut page, program, 2, &common);
    }
    page
}

fn built(mut program: Command) -> Command {
    program.build();
    program
}

/// The options and arguments that several commands have with the same words, as items of a list. Of several that have one name, the most
/// frequent.
fn common(programs: &[Command]) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let mut commands: Vec<&Command> = programs.iter().collect();
    while let Some(command) = commands.pop() {
        for arg in shown(command) {
            let items = counts.entry(arg.get_long().map_or_else(|| arg.to_string(), str::to_owned)).or_default();
            *items.entry(item(arg)).or_default() += 1;
        }
        commands.extend(subcommands(command));
    }
    let most = counts.into_values().filter_map(|items| items.into_iter().max_by_key(|(_, count)| *count));
    most.filter(|(_, count)| *count >= COMMON_FROM).map(|(item, _)| item).collect()
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set() && !is_builtin(arg))
}

fn write_command(page: &mut String, command: &Command, level: usize, common: &BTreeSet<String>) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let heading = "#".repeat(level.min(4));
    write!(page, "\n{heading} `{name}`\n\n{}", about(command)).expect("a string takes every text");
    write_arguments(page, command, common);
    for subcommand in subcommands(command) {
        write_command(page, subcommand, level + 1, common);
    }
}

/// Paragraphs as prose; one with indented lines is an example.
fn about(command: &Command) -> String {
    let text = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let paragraphs = text.split("\n\n").filter(|part| !part.trim().is_empty()).map(paragraph);
    paragraphs.collect::<Vec<_>>().join("\n")
}

fn paragraph(text: &str) -> String {
    let (prose, example): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| !line.starts_with("    "));
    let prose = wrapped(&escaped(&prose.join(" ")), "");
    if example.is_empty() {
        return sentence(&prose) + "\n";
    }
    let example: Vec<&str> = example.iter().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    format!("{prose}\n\n{}", code("sh", &example.join("\n")))
}

fn write_arguments(page: &mut String, command: &Command, common: &BTreeSet<String>) {
    let (common, own): (Vec<&Arg>, Vec<&Arg>) = shown(command).partition(|arg| common.contains(&item(arg)));
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in &own {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            write!(page, "\n**{heading}**\n").expect("a string takes every text");
        }
        page.push('\n');
        own.iter().filter(|arg| arg.get_help_heading() == heading).for_each(|arg| page.push_str(&item(arg)));
    }
    // Every command of its program has a global option, which needs no mention.
    let names: Vec<String> = common.iter().filter(|arg| !arg.is_global_set()).map(|arg| name(arg)).collect();
    if !names.is_empty() {
        let also = format!(
            "Also {}: see [{}](#{}).",
            names.join(", "),
            COMMON.to_lowercase(),
            COMMON.to_lowercase().replace(' ', "-")
        );
        page.push_str(&format!("\n{}\n", wrapped(&also, "")));
    }
}

fn name(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| format!("`{arg}`"), |long| format!("`--{long}`"))
}

/// What every command has.
fn is_builtin(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

fn item(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let (prose, listed) = help(arg);
    let text = [vec![format!("`{short}{arg}`:")], prose, facts(arg)].concat().join(" ");
    let listed: String = listed.iter().map(|list| format!("\n{}", indented(&code("text", list)))).collect();
    format!("- {}\n{listed}", wrapped(&text, "  "))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect()
}

/// The first paragraph of the help, and those with indented lines as they are; the program prints the others. Where the paragraph ends in a
/// default that depends on something, that is a sentence too.
fn help(arg: &Arg) -> (Vec<String>, Vec<String>) {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let is_list = |part: &&str| part.lines().all(|line| line.starts_with("  "));
    let (listed, prose): (Vec<&str>, Vec<&str>) = help.trim().split("\n\n").partition(is_list);
    let stated =
        prose.iter().find_map(|part| with_default(part)).map(|(_, stated)| format!("Default: {}", escaped(stated)));
    let first = prose.first().map(|part| with_default(part).map_or(*part, |(rest, _)| rest));
    let first = first.map(escaped).filter(|help| !help.is_empty());
    let listed = listed.into_iter().filter(|list| !list.is_empty()).map(unindented);
    (first.into_iter().chain(stated).map(|text| sentence(&text)).collect(), listed.collect())
}

/// The text before a default at its end, and the default.
fn with_default(text: &str) -> Option<(&str, &str)> {
    text.strip_suffix(']')?.rsplit_once("[default: ")
}

fn unindented(list: &str) -> String {
    let lines: Vec<&str> = list.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    lines.join("\n")
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    match text.chars().last() {
        None | Some('.' | ':' | '!' | '?') => text.to_owned(),
        Some(_) => format!("{text}."),
    }
}

fn facts(arg: &Arg) -> Vec<String> {
    let mut facts = Vec::new();
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let shown = values.iter().filter(|value| !value.is_hide_set());
        let values: Vec<String> = shown.map(|value| format!("`{}`", value.get_name())).collect();
        if !values.is_empty() {
            facts.push(format!("Values: {}.", values.join(", ")));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && !arg.is_hide_default_value_set() {
            facts.push(format!("Default: `{}`.", defaults.join(" ")));
        }
    }
    if arg.is_required_set() && !arg.is_positional() {
        facts.push("Required.".to_owned());
    }
    if arg.is_global_set() {
        facts.push("Every command of the program has it.".to_owned());
    }
    if let Some(variable) = arg.get_env() {
        facts.push(format!("Environment: `{}`.", variable.to_string_lossy()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    fn options_of(command: &Command, found: &mut Vec<String>) {
        found.extend(shown(command).filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))));
        command.get_subcommands().filter(|it| !it.is_hide_set()).for_each(|it| options_of(it, found));
    }

    #[test]
    fn every_command_and_option_of_the_three_programs_is_on_the_page() {
        let page = page();
        let mut options = Vec::new();
        for mut program in programs() {
            program.build();
            options_of(&program, &mut options);
            for command in program.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help") {
                assert!(page.contains(&format!("\n### `{} {}`\n", program.get_name(), command.get_name())));
            }
        }
        assert!(options.len() > 80, "{}", options.len());
        for option in options {
            assert!(page.contains(&option), "{option}");
        }
        assert!(!page.contains("compile-child"), "a hidden command is on the page");
    }

    #[test]
    fn an_option_is_told_with_its_values_default_and_variable() {
        let page = page();
        let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("Values: `table`, `json`, `csv`. Default: `table`."), "gpufleet history --output");
        assert!(flat.contains("Environment: `GPUFLEET_DATABASE_URL`."));
    }
}
