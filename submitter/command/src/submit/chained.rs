//! Inputs that are kept outputs of other jobs: `--in x=job:ID/y`, and `"data": {"output": {"job": ID, "name": "y"}}` in a
//! task file.

use std::{collections::BTreeMap, path::Path};

use gpufleet::{InputError, Job, ResultError, schema::Buffer};
use gpufleet_ledger::Ledger;

use super::{Options, plan::Plan};
use crate::{catch_up, complaint::Complaint, connection, kept, lookup, options::LedgerOptions};

const PREFIX: &str = "job:";

/// The buffers of the command line that come from other jobs, by their names.
pub type ChainedInputs = BTreeMap<String, Buffer<'static>>;

/// A connection to the ledger, made when it is needed first.
pub struct LazyLedger<'a> {
    options: &'a LedgerOptions,
    ledger: Option<Ledger>,
}

impl<'a> LazyLedger<'a> {
    pub fn new(options: &'a LedgerOptions) -> Self {
        Self { options, ledger: None }
    }

    async fn get(&mut self) -> Result<&Ledger, Complaint> {
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => connection::ledger(self.options).await?,
        };
        Ok(self.ledger.insert(ledger))
    }

    pub async fn close(self) {
        if let Some(ledger) = self.ledger {
            ledger.close().await;
        }
    }
}

/// Finds the outputs that the command line names, which have their own dtypes and shapes.
pub async fn find(options: &Options, ledger: &mut LazyLedger<'_>) -> Result<ChainedInputs, Complaint> {
    let mut inputs = ChainedInputs::new();
    for file in options.input.iter().chain(&options.inout) {
        let Some((id, output)) = named(&file.path)? else { continue };
        if file.form.is_some() {
            return Err(Complaint::usage(format!("{} has its own dtype and shape", file.path.display()))
                .hint(format!("leave them out: {}={}", file.name, file.path.display())));
        }
        let buffer = buffer(ledger.get().await?, &file.name, id, output).await?;
        inputs.insert(file.name.clone(), buffer);
    }
    Ok(inputs)
}

/// The job and the output that the text names.
fn named(path: &Path) -> Result<Option<(&str, &str)>, Complaint> {
    let Some(job) = path.to_str().and_then(|path| path.strip_prefix(PREFIX)) else { return Ok(None) };
    match job.split_once('/') {
        Some((id, output)) if !id.is_empty() && !output.is_empty() => Ok(Some((id, output))),
        _ => Err(Complaint::usage(format!("{PREFIX}{job} does not name an output of a job"))
            .hint(format!("give the job and its output: {PREFIX}ID/OUTPUT; a file of this name is ./{PREFIX}{job}"))),
    }
}

async fn buffer(ledger: &Ledger, name: &str, id: &str, output: &str) -> Result<Buffer<'static>, Complaint> {
    let detail = lookup::in_ledger(ledger, id).await?;
    let result = kept::result(*detail, ledger, None)?;
    let found = result.output(output).map_err(|error| kept::complaint(&error))?;
    Ok(Buffer::output_of(name, found.dtype(), found.shape(), result.job_id, output))
}

/// Replaces the outputs of other jobs by what the ledger says of them. Without any, the ledger is not needed.
pub async fn resolve(plan: &mut Plan, ledger: &mut LazyLedger<'_>) -> Result<(), Complaint> {
    if plan.job.is_chained() {
        let ledger = ledger.get().await?;
        let resolved = catch_up::until(async || Ok(plan.job.clone().chained(ledger).await), is_settled).await?;
        plan.job = resolved.map_err(|error| complaint(&error))?;
    }
    Ok(())
}

/// Whether the ledger's answer stays the same when it has caught up with what this user knows.
fn is_settled(resolved: &Result<Job, InputError>) -> bool {
    match resolved {
        Err(InputError::Result { source: ResultError::UnknownJob { job_id }, .. }) => {
            catch_up::is_current(*job_id, None)
        }
        Err(InputError::Result { source: ResultError::NotEnded { job_id, state }, .. }) => {
            catch_up::is_current(*job_id, Some(*state))
        }
        _ => true,
    }
}

/// The complaint about an output of another job that can't be an input.
pub fn complaint(error: &InputError) -> Complaint {
    match error {
        InputError::Result { source, .. } => Complaint { message: error.to_string(), ..kept::complaint(source) },
        InputError::OtherPool { job_id, .. } => Complaint::bad_input(error.to_string()).hint(format!(
            "submit this job to the pool of the other one, which `gpufleet show {job_id}` shows: --pool NAME"
        )),
        InputError::OtherForm { .. } => Complaint::bad_input(error.to_string())
            .hint("correct the dtype and the shape of the buffer in the task file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_with_job_and_output_names_another_job() {
        assert_eq!(named(Path::new("job:01a2/y")), Ok(Some(("01a2", "y"))));
        assert_eq!(named(Path::new("job:@last/y/z")), Ok(Some(("@last", "y/z"))));
        for file in ["./job:01a2/y", "x.npy", "jobs/y"] {
            assert_eq!(named(Path::new(file)), Ok(None), "{file}");
        }
        for incomplete in ["job:01a2", "job:01a2/", "job:/y", "job:"] {
            assert!(named(Path::new(incomplete)).unwrap_err().hint.unwrap().contains("job:ID/OUTPUT"), "{incomplete}");
        }
    }
}
