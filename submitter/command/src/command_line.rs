//! The command line as typed. Each command interprets its own options in its own file.

use super::{
    actions, blobs, cancel, completions, dead, doctor, environment, exit, export, fetch, history, init, kernels,
    keygen, local, logs, man, map, notebook, permissions, pools, report, rerun, run, show, stats, submit, top, usage,
    wait, why, workers,
};
use clap::{Parser, Subcommand};

/// Run GPU jobs on a fleet of workers, from a machine without a GPU.
#[derive(Debug, Parser)]
#[command(name = "gpufleet", version, max_term_width = 100)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", environment::TABLE, exit::TABLE))]
pub struct Options {
    /// Profile in the configuration file. It supplies the settings that neither options nor the environment give [default: `default` in the file]
    // Read before the other options: see `profile`.
    #[arg(long, global = true, value_name = "NAME", env = environment::PROFILE, help_heading = "Connection")]
    pub profile: Option<String>,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet local up                  # start a whole fleet on this machine
  gpufleet submit saxpy --arg a=2.0 --in x=x.npy --inout y=y.npy --out y=result.npy
  gpufleet history --state failed --since 2h
  gpufleet show 01a20400             # the beginning of a job's id is enough";

#[derive(Debug, Subcommand)]
pub enum Command {
    Submit(Box<submit::Options>),
    Map(Box<map::Options>),
    Run(Box<run::Options>),
    Notebook(notebook::Options),
    Wait(wait::Options),
    Fetch(fetch::Options),
    Cancel(cancel::Options),
    History(history::Options),
    Export(export::Options),
    Show(show::Options),
    Logs(logs::Options),
    Why(why::Options),
    Report(report::Options),
    Stats(stats::Options),
    Usage(usage::Options),
    Pools(pools::Options),
    Top(top::Options),
    Workers(workers::Options),
    Doctor(doctor::Options),
    Actions(actions::Options),
    Dead(dead::Options),
    /// Submit dead-lettered jobs again; same as `gpufleet dead replay`
    Retry(dead::ReplayOptions),
    Rerun(rerun::Options),
    Blobs(blobs::Options),
    Init(init::Options),
    Kernels(kernels::Options),
    Keygen(keygen::Options),
    Permissions(permissions::Options),
    Local(local::Options),
    Completions(completions::Options),
    Man(man::Options),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const MAP: [&str; 8] = ["map", "--parquet", "in.parquet", "out.parquet", "--kernel", "saxpy", "--columns", "x,y"];

    /// Removes the trailing blanks that clap leaves, and values from the environment of the test run.
    fn long_help(command: clap::Command) -> String {
        let help = command.term_width(100).mut_args(|arg| arg.hide_env(true)).render_long_help().to_string();
        help.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_password_shows_neither_in_debug_nor_in_help() {
        let options =
            Options::try_parse_from(["gpufleet", "history", "--database-url", "postgres://u:canary@h/d"]).unwrap();
        assert!(!format!("{options:?}").contains("canary"));
    }

    #[test]
    fn the_help_of_the_command_names_its_parts_and_the_exit_codes() {
        insta::assert_snapshot!(long_help(crate::command()));
    }

    #[test]
    fn only_commands_that_submit_jobs_have_the_option_for_the_user_id() {
        let knows = |words: &[&str]| {
            let words = [&["gpufleet"], words, &["--no-user-id"]].concat();
            Options::try_parse_from(words).is_ok()
        };
        let id = "01990f3e";
        for submitting in [&["submit", "saxpy"][..], &MAP, &["retry", id], &["dead", "replay", id]] {
            assert!(knows(submitting), "{submitting:?}");
        }
        for other in [&["cancel", id][..], &["workers", "drain", "w"], &["dead", "list"], &["dead", "show", id]] {
            assert!(!knows(other), "{other:?}");
        }
        assert!(!knows(&["dead", "discard", id]));
    }

    #[test]
    fn only_commands_that_read_or_write_arrays_have_the_option_for_the_blob_store() {
        let knows = |words: &[&str]| {
            let words = [&["gpufleet"], words, &["--blobs", "/blobs"]].concat();
            Options::try_parse_from(words).is_ok()
        };
        for reads_or_writes in
            [&["submit", "saxpy"][..], &MAP, &["blobs", "put", "x.npy"], &["blobs", "prune", "--older-than", "7d"]]
        {
            assert!(knows(reads_or_writes), "{reads_or_writes:?}");
        }
        for other in [&["retry", "01990f3e"][..], &["cancel", "01990f3e"], &["dead", "list"]] {
            assert!(!knows(other), "{other:?}");
        }
    }
}
