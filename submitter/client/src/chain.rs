//! Inputs that are kept outputs of other jobs. The client looks them up in the ledger before it publishes the job. A blob is named by its
//! digest, so its bytes do not pass through the client; bytes that the ledger holds travel in the task.

use gpufleet_ledger::Ledger;
use gpufleet_schema::{Buffer, Data, Dtype, Inline, JobId, OutputOf, PoolName};

use crate::{
    array,
    kept::{KeptResult, ResultError},
};

/// Why a job can't take the output of another job.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("failed to take buffer {buffer:?} from another job: {source}")]
    Result { buffer: String, source: ResultError },
    #[error(
        "failed to take buffer {buffer:?} from job {job_id}: it did not run in pool {pool}, and a job takes outputs of its own pool only"
    )]
    OtherPool { buffer: String, job_id: JobId, pool: PoolName },
    #[error(
        "failed to take buffer {buffer:?} from job {job_id}: its output {name:?} is {}{}, not {}{}",
        found.0, array::brackets(&found.1), wanted.0, array::brackets(&wanted.1)
    )]
    OtherForm { buffer: String, job_id: JobId, name: String, found: (Dtype, Vec<u64>), wanted: (Dtype, Vec<u64>) },
}

/// Whether a buffer needs [`resolve`].
pub(crate) fn is_chained(buffer: &Buffer<'_>) -> bool {
    matches!(buffer.data, Data::Output(_))
}

/// Replaces the outputs of other jobs by blobs or bytes. If cancelled or failed, some are replaced.
pub(crate) async fn resolve(
    buffers: &mut [Buffer<'static>],
    pool: &PoolName,
    ledger: &Ledger,
) -> Result<(), InputError> {
    for buffer in buffers {
        if let Data::Output(source) = &buffer.data {
            buffer.data = contents(buffer, source, pool, ledger).await?;
        }
    }
    Ok(())
}

async fn contents(
    buffer: &Buffer<'_>,
    OutputOf { job, name }: &OutputOf,
    pool: &PoolName,
    ledger: &Ledger,
) -> Result<Data<'static>, InputError> {
    let failed = |source: ResultError| InputError::Result { buffer: buffer.name.clone(), source };
    let found = ledger.outputs_for_pool(*job, pool).await.map_err(|error| failed(error.into()))?;
    let found = found.ok_or_else(|| failed(ResultError::UnknownJob { job_id: *job }))?;
    if !found.is_of_pool {
        return Err(InputError::OtherPool { buffer: buffer.name.clone(), job_id: *job, pool: pool.clone() });
    }
    let result = KeptResult::new(*job, found.state, found.outputs, ledger, None).map_err(failed)?;
    let output = result.output(name).map_err(failed)?;
    if output.dtype() != buffer.dtype || output.shape() != buffer.shape {
        return Err(InputError::OtherForm {
            buffer: buffer.name.clone(),
            job_id: *job,
            name: name.clone(),
            found: (output.dtype(), output.shape().to_vec()),
            wanted: (buffer.dtype, buffer.shape.clone()),
        });
    }
    match output.digest() {
        Some(digest) => Ok(Data::Blob(digest)),
        None => Ok(Data::Inline(Inline::from(output.inline().await.map_err(failed)?))),
    }
}
