//! The options of `gpufleet notebook run`, and the command that they become.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use gpufleet::{archive, schema::bounds::ATTEMPTS_MAX};

use super::document;
use crate::{
    complaint::Complaint,
    exit, files,
    job_options::JobOptions,
    json,
    options::{BlobOptions, ProducerOptions},
    run::{
        self,
        on_worker::{HostOptions, VariableSpec},
    },
    spec,
};

/// Run a whole notebook on the machine of a worker
///
/// papermill runs all cells there, with a whole GPU, in an environment that the worker offers and that has papermill and the notebook's
/// kernel. What the cells print comes while they run. The executed notebook comes back when it has ended, also if a cell failed. The exit
/// code is papermill's.
///
/// The notebook's working directory has the files of --upload. Lines of gpufleet itself go to standard error and begin with `gpufleet:`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::RUN_REPORT, exit::TABLE))]
#[command(mut_arg("pool", |arg| arg.help("Pool whose workers run host programs [default: default]")))]
#[command(mut_arg("device_name", |arg| arg.help("Use only a device whose name contains this text, such as H200")))]
#[command(mut_arg("min_memory", |arg| arg.help("Use only a device with at least this much memory, such as 40GiB")))]
#[command(mut_arg("compute_capability", |arg| arg.help("Use only a device of at least this compute capability, such as 8.0")))]
pub struct RunOptions {
    /// Notebook to run
    pub notebook: PathBuf,
    /// Environment of the worker to run the notebook in, such as torch. It needs papermill and the notebook's kernel
    #[arg(long, value_name = "NAME", group = "place", required_unless_present = "image")]
    pub env: Option<String>,
    /// Container image of the worker to run the notebook in, and not in an environment. It needs papermill and the notebook's kernel
    #[arg(long, value_name = "IMAGE", group = "place")]
    pub image: Option<String>,
    /// File for the executed notebook [default: NAME-done.ipynb beside the notebook NAME.ipynb]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file of --output and those of --download if they exist
    #[arg(long)]
    pub force: bool,
    /// Parameter of the notebook. Repeatable. papermill reads numbers, True, False and None as such, and anything else as text
    #[arg(short, long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    pub parameter: Vec<String>,
    /// YAML file of parameters. Those of --parameter take precedence
    #[arg(long, value_name = "FILE")]
    pub parameters: Option<PathBuf>,
    /// Kernel to run the notebook with [default: the notebook's]
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,

    /// File or folder that the notebook finds in its working directory: data as data, the contents of . as they are. Repeatable. Files that
    /// .gpufleetignore names and .git are left out
    #[arg(long, value_name = "PATH", help_heading = "On the worker")]
    pub upload: Vec<PathBuf>,
    /// Files to bring back beside the executed notebook, such as 'out/**'. Repeatable
    #[arg(long, value_name = "GLOB", help_heading = "On the worker")]
    pub download: Vec<String>,
    /// Environment variable of the notebook. Repeatable. It has none of those here
    #[arg(long, value_name = "NAME=VALUE", help_heading = "On the worker")]
    pub variable: Vec<VariableSpec>,
    /// Let the notebook use the network, if the pool allows it
    #[arg(long, help_heading = "On the worker")]
    pub network: bool,
    /// Longest time for which the notebook runs, such as 30m or 2h [default: set by the pool]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "On the worker")]
    pub time_limit: Option<Duration>,
    /// Longest time to wait for a worker [default: set by the pool, else none]
    #[arg(long, value_name = "DURATION", value_parser = spec::queue_limit, help_heading = "On the worker")]
    pub queue_limit: Option<Duration>,
    /// Number of times that the notebook may run, 1 to 20, if workers are lost while it runs [default: 1]
    #[arg(long, value_name = "N", value_parser = spec::whole(1..=ATTEMPTS_MAX), help_heading = "On the worker")]
    pub attempts: Option<u32>,
    /// Print the job's id once the broker has stored the job, and exit. `gpufleet logs --follow ID` shows the output, `gpufleet fetch ID
    /// --dir FOLDER` writes the executed notebook and the files to a folder
    #[arg(long, conflicts_with_all = ["output", "force", "report"], help_heading = "On the worker")]
    pub detach: bool,
    /// Keep the executed notebook, the files and the output for this long, for `gpufleet fetch` [default: 7days with --detach, 1day with a
    /// blob store, else not at all]
    #[arg(long, value_name = "DURATION", value_parser = spec::keep, help_heading = "On the worker")]
    pub keep: Option<Duration>,

    #[command(flatten)]
    pub job: JobOptions,

    /// Write how the notebook ended to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print only errors and warnings
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub producer: ProducerOptions,
    #[command(flatten)]
    pub blobs: BlobOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet notebook run analysis.ipynb --env torch
  gpufleet notebook run train.ipynb --env torch -p epochs 20 -p rate 0.01 --output results/20.ipynb
  With the files of this folder, and without waiting:
    id=$(gpufleet notebook run train.ipynb --env torch --upload . --download 'out/**' --detach)
    gpufleet logs --follow $id; gpufleet fetch $id --dir results";

impl RunOptions {
    /// Checks the notebook, and that the executed one replaces no file.
    pub fn check(&self) -> Result<(), Complaint> {
        document::check(&self.notebook, self.kernel.as_deref())?;
        if self.detach {
            return Ok(());
        }
        let executed = self.executed();
        if executed.exists() && !self.force {
            return Err(Complaint::bad_input(format!("{} exists already", executed.display()))
                .hint("name another file with --output, or replace it with --force"));
        }
        files::check_folder(&executed)
    }

    /// The name of the executed notebook, on the worker and in its folder here.
    pub fn executed_name(&self) -> Result<String, Complaint> {
        text(Path::new(self.executed().file_name().unwrap_or_default()))
    }

    /// Where the notebook runs, for a sentence.
    pub fn place(&self) -> String {
        match (&self.env, &self.image) {
            (_, Some(image)) => format!("the image {image}"),
            (environment, None) => format!("the environment {}", environment.as_deref().unwrap_or_default()),
        }
    }

    fn executed(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let mut name = self.notebook.file_stem().unwrap_or_default().to_owned();
            name.push("-done.ipynb");
            self.notebook.with_file_name(name)
        })
    }

    /// The `gpufleet run --on-worker` of papermill.
    pub fn into_run(self) -> Result<run::Options, Complaint> {
        let command = self.papermill()?;
        let executed = self.executed();
        let download = std::iter::once(escaped(&self.executed_name()?)).chain(self.download).collect();
        let upload = std::iter::once(self.notebook).chain(self.parameters).chain(self.upload).collect();
        let host = HostOptions {
            on_worker: true,
            env: self.env,
            image: self.image,
            upload,
            download,
            dir: (!self.detach).then(|| files::folder_of(&executed).to_owned()),
            force: self.force,
            variable: self.variable,
            network: self.network,
            attempts: self.attempts,
            detach: self.detach,
            keep: self.keep,
        };
        Ok(run::Options {
            memory: None,
            sessions: None,
            time_limit: self.time_limit,
            idle_limit: None,
            queue_limit: self.queue_limit,
            library: None,
            host,
            job: self.job,
            report: self.report,
            quiet: self.quiet,
            producer: self.producer,
            blobs: self.blobs,
            command: command.into_iter().map(OsString::from).collect(),
        })
    }

    fn papermill(&self) -> Result<Vec<String>, Complaint> {
        let uploaded = |path: &Path| text(&archive::name_of(path));
        let mut words = vec![uploaded(&self.notebook)?, self.executed_name()?];
        if let Some(file) = &self.parameters {
            words.extend(["-f".to_owned(), uploaded(file)?]);
        }
        for parameter in self.parameter.chunks(2) {
            words.push("-p".to_owned());
            words.extend_from_slice(parameter);
        }
        words.extend(["--log-output", "--no-progress-bar"].map(str::to_owned));
        if let Some(kernel) = &self.kernel {
            words.extend(["-k".to_owned(), kernel.clone()]);
        }
        words.extend(["--cwd", "."].map(str::to_owned));
        Ok(["python3", "-m", "papermill"].map(str::to_owned).into_iter().chain(words).collect())
    }
}

fn text(path: &Path) -> Result<String, Complaint> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Complaint::bad_input(format!("the name {} is not UTF-8", path.display())).hint("rename the file")
    })
}

/// The glob of one name.
fn escaped(name: &str) -> String {
    name.chars().flat_map(|c| ("*?[]{}\\".contains(c).then_some('\\')).into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gpufleet::schema::{Program, host_program::HostProgram};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: RunOptions,
    }

    fn parsed(line: &str) -> Result<RunOptions, clap::Error> {
        Line::try_parse_from(std::iter::once("run").chain(line.split_whitespace())).map(|line| line.options)
    }

    fn program(line: &str) -> HostProgram {
        let run = parsed(line).unwrap().into_run().unwrap();
        match run.host_program(false).unwrap().build().unwrap().task.program {
            Program::Host(program) => program.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_become_the_command_of_papermill() {
        let program = program(
            "nb/analysis.ipynb --env torch -p rate -0.5 -p name x --parameters p.yaml --kernel python3 --download out/** --variable A=1",
        );
        assert_eq!(
            program.command.join(" "),
            "python3 -m papermill nb/analysis.ipynb analysis-done.ipynb -f p.yaml -p rate -0.5 -p name x --log-output --no-progress-bar \
             -k python3 --cwd ."
        );
        assert_eq!(program.download, ["analysis-done.ipynb", "out/**"]);
        assert_eq!((program.environment.as_deref(), program.variables["A"].as_str()), (Some("torch"), "1"));
    }

    #[test]
    fn a_notebook_runs_in_an_image_as_well() {
        let program = program("a.ipynb --image torch:2.9");
        assert_eq!((program.environment, program.image.as_deref()), (None, Some("torch:2.9")));
    }

    #[test]
    fn the_executed_notebook_and_the_downloads_go_to_the_folder_of_the_output() {
        let run = |line: &str| parsed(line).unwrap().into_run().unwrap();
        let folder = |line: &str| run(line).host.dir;
        assert_eq!(folder("nb/a.ipynb --env torch"), Some("nb".into()));
        assert_eq!(folder("a.ipynb --env torch"), Some(".".into()));
        assert_eq!(folder("nb/a.ipynb --env torch --output results/1.ipynb --force"), Some("results".into()));
        assert_eq!(folder("nb/a.ipynb --env torch --detach"), None);
        let upload = run("/data/a.ipynb --env torch --parameters p.yaml --upload src").host.upload;
        assert_eq!(upload, ["/data/a.ipynb", "p.yaml", "src"].map(PathBuf::from));
        assert_eq!(program("/data/a.ipynb --env torch").command[3..5], ["a.ipynb", "a-done.ipynb"]);
        assert_eq!(program("a.ipynb --env torch --output [1]*.ipynb").download, ["\\[1\\]\\*.ipynb"]);
    }

    #[test]
    fn an_existing_output_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("a.ipynb"), r#"{"nbformat": 4, "cells": []}"#).unwrap();
        let check = |options: &str| {
            let options = parsed(&format!("{} --env torch --kernel python3 {options}", path("a.ipynb"))).unwrap();
            options.check().map_err(|complaint| complaint.message)
        };
        assert_eq!(check(""), Ok(()));
        std::fs::write(path("a-done.ipynb"), "").unwrap();
        assert!(check("").unwrap_err().ends_with("a-done.ipynb exists already"));
        assert_eq!(check("--force"), Ok(()));
        assert_eq!(check("--detach"), Ok(()), "`gpufleet fetch` chooses the folder");
        assert_eq!(check(&format!("--output {}", path("other.ipynb"))), Ok(()));
        assert!(
            check(&format!("--output {}", path("none/x.ipynb"))).unwrap_err().ends_with("its folder does not exist")
        );
    }

    #[test]
    fn wrong_usage_names_the_option() {
        for (line, named) in [
            ("a.ipynb", "--env"),
            ("--env torch", "NOTEBOOK"),
            ("a.ipynb --env torch --image x", "--image"),
            ("a.ipynb --env torch -p only", "--parameter"),
            ("a.ipynb --env torch --detach --output x.ipynb", "--output"),
            ("a.ipynb --env torch --memory 1GiB", "--memory"),
        ] {
            let error = parsed(line).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{line}: {error}");
        }
    }
}
