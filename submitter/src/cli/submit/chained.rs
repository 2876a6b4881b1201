//! Inputs that are kept outputs of other jobs: `--in x=job:ID/y`.
//!
//! A blob is named by its digest, so its bytes do not pass through the client. The ledger's own bytes travel in the task.

use std::{collections::BTreeMap, path::Path};

use gpufleet::{Array, Job, StoredArray};
use gpufleet_ledger::{Ledger, OutputRow, PrefixMatch};

use super::Options;
use crate::cli::{complaint::Complaint, connection, fetch, show};

const PREFIX: &str = "job:";

/// The inputs that come from other jobs, by the name of their buffer.
pub type ChainedInputs = BTreeMap<String, ChainedInput>;

#[derive(Debug, Clone)]
pub enum ChainedInput {
    Stored(StoredArray),
    Array(Array),
}

impl ChainedInput {
    pub fn add_to(&self, job: Job, name: &str) -> Job {
        match self {
            Self::Stored(stored) => job.input_stored(name, stored),
            Self::Array(array) => job.input_array(name, array.clone()),
        }
    }
}

/// Looks the other jobs up. Without such inputs it does not need the ledger.
pub async fn resolve(options: &Options) -> Result<ChainedInputs, Complaint> {
    let mut inputs = ChainedInputs::new();
    let mut ledger = None;
    for file in options.input.iter().chain(&options.inout) {
        let Some((id, output)) = named(&file.path) else { continue };
        if file.form.is_some() {
            return Err(Complaint::usage(format!("{} has its own dtype and shape", file.path.display()))
                .hint(format!("leave them out: {}={}", file.name, file.path.display())));
        }
        let known = match ledger.take() {
            Some(known) => known,
            None => connection::ledger(&options.ledger).await?,
        };
        inputs.insert(file.name.clone(), read(&known, id, output).await?);
        ledger = Some(known);
    }
    Ok(inputs)
}

/// The job and the output that the text names.
fn named(path: &Path) -> Option<(&str, &str)> {
    path.to_str()?.strip_prefix(PREFIX)?.split_once('/')
}

async fn read(ledger: &Ledger, id: &str, name: &str) -> Result<ChainedInput, Complaint> {
    let detail = match ledger.job_by_prefix(id).await.map_err(|error| connection::ledger_complaint(&error))? {
        PrefixMatch::One(detail) => detail,
        PrefixMatch::None => return Err(show::missing(id)),
        PrefixMatch::Many(jobs) => return Err(show::ambiguous(id, &jobs)),
    };
    let output = fetch::kept_output(&detail, name)?;
    let OutputRow { dtype, shape, digest, .. } = output;
    let damaged = |problem: String| fetch::damaged(output, detail.job.job_id, &problem);
    match digest {
        Some(digest) => {
            let stored = StoredArray::new(*digest, *dtype, shape.clone());
            stored.map(ChainedInput::Stored).map_err(|problem| damaged(problem.to_string()))
        }
        None => {
            let bytes = fetch::inline(ledger, detail.job.job_id, output).await?;
            let array = Array::new(*dtype, shape.clone(), bytes);
            array.map(ChainedInput::Array).map_err(|problem| damaged(problem.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_with_job_and_output_names_another_job() {
        assert_eq!(named(Path::new("job:01a2/y")), Some(("01a2", "y")));
        assert_eq!(named(Path::new("job:01a2/y/z")), Some(("01a2", "y/z")));
        for file in ["job:01a2", "./job:01a2/y", "x.npy", "jobs/y"] {
            assert_eq!(named(Path::new(file)), None, "{file}");
        }
    }
}
