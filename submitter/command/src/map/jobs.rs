//! The jobs of the batches.

use std::sync::Arc;

use gpufleet::{Array, Fleet, Job, JobError, JobResult, SubmitError, schema::PoolName};

use super::{
    Mapping, Options,
    kernel::{Buffer, Kernel},
};
use crate::{
    complaint::Complaint,
    exit::Exit,
    recent::{self, Seen},
    submit::{self, SourceText},
};

/// Runs a job for each batch.
#[derive(Debug)]
pub struct Jobs<'a> {
    options: &'a Options,
    kernel: Arc<Kernel>,
    has_store: bool,
}

impl<'a> Jobs<'a> {
    /// Checks the scalars and all other settings of the jobs with inputs of one element.
    pub fn plan(options: &'a Options, mapping: &Mapping, has_store: bool) -> Result<Self, Complaint> {
        let scalars = options.arg.iter().map(|scalar| ("scalar", &scalar.name));
        submit::given_once(scalars.chain(options.label.iter().map(|label| ("label", &label.key))))?;
        let jobs = Self { options, kernel: Arc::clone(mapping.kernel()), has_store };
        let element = |buffer: &Buffer| {
            let array = Array::new(buffer.dtype, vec![1], vec![0; buffer.dtype.size()]);
            (buffer.name.clone(), array.expect("one element has the bytes of its dtype"))
        };
        let job = jobs.job(jobs.kernel.inputs().map(element).collect());
        let program = job.program().clone();
        job.build().map_err(|problem| submit::invalid(&problem, &program))?;
        Ok(jobs)
    }

    pub fn pool(&self) -> PoolName {
        self.options.pool.clone().unwrap_or_default()
    }

    /// Runs one job, and returns its outputs by name. Cancelling the future leaves the job in its queue.
    pub async fn run(&self, fleet: &Fleet, inputs: Vec<(String, Array)>) -> Result<Vec<(String, Array)>, Complaint> {
        let job = self.job(inputs);
        let handle = loop {
            match fleet.submit(job.clone()).await {
                Ok(handle) => break handle,
                Err(error) => self.wait_for_room(error, &job).await?,
            }
        };
        drop(job);
        let job_id = handle.id();
        recent::note(job_id, Seen::Submitted);
        let ended = handle.await;
        if matches!(ended, Ok(_) | Err(JobError::Failed(_))) {
            recent::note(job_id, Seen::Ended);
        }
        let JobResult { outputs, .. } = ended.map_err(|error| failed(&error, self.kernel.source()))?;
        Ok(outputs)
    }

    /// Waits until the same job may be submitted again. A full queue is no reason to end a long run.
    async fn wait_for_room(&self, error: SubmitError, job: &Job) -> Result<(), Complaint> {
        match error.retry_after() {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            None => Err(submit::refused(&error, job.program(), self.has_store)),
        }
    }

    fn job(&self, inputs: Vec<(String, Array)>) -> Job {
        let options = self.options;
        let mut job = self.kernel.job(options, inputs);
        job = job.pool(self.pool()).priority(options.priority.unwrap_or_default());
        job = options.label.iter().fold(job, |job, label| job.label(&label.key, &label.value));
        if let Some(name) = &options.name {
            job = job.name(name);
        }
        if let Some(limit) = options.time_limit {
            job = job.time_limit(limit);
        }
        if let Some(device) = &options.device_name {
            job = job.requires_device(device);
        }
        job
    }
}

fn failed(error: &JobError, source: Option<&SourceText>) -> Complaint {
    match error {
        JobError::Failed(failed) => submit::failed(failed, source),
        JobError::DeadlinePassed { .. } => Complaint::new(Exit::DeadlinePassed, error.to_string()),
        JobError::Closed { .. } => Complaint::new(Exit::Broker, error.to_string()),
        JobError::Unavailable { .. } => Complaint::new(Exit::NotFound, error.to_string()),
        JobError::BadReply { .. } => Complaint::new(Exit::FleetFailed, error.to_string())
            .hint("check that the worker and this command have the same version and use the same blob store (--blobs)"),
    }
}
