//! Writes what a host program has left: its files, unpacked, and all of its output.

use std::{fs::File, path::Path};

use gpufleet::{
    KeptOutput, KeptResult, ResultError,
    schema::{
        JobId,
        host_program::{FILES, LOG},
    },
};
use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{JobDetail, Ledger};

use super::Fetched;
use crate::{
    complaint::Complaint,
    exit::Exit,
    files::{self, PartialFile},
    kept, printed, quantity,
    run::on_worker::files::{Saved, save},
    waiting::Spinner,
};

/// Writes the files and the output to the folder. A file that exists with other contents stays, unless `replaces` is true.
pub async fn fetch(
    detail: JobDetail,
    ledger: &Ledger,
    store: Option<&BlobStore>,
    dir: &Path,
    replaces: bool,
) -> Result<Vec<Fetched>, Complaint> {
    let job_id = detail.job.job_id;
    // An output of up to 64 KiB is whole in the ledger.
    let short = printed::by_deciding_attempt(&detail).filter(|printed| printed.dropped_bytes == 0);
    let outputs = match KeptResult::of(detail, ledger, store) {
        Ok(result) => result.outputs,
        Err(ResultError::NotKept { .. } | ResultError::NotSucceeded { .. }) if short.is_some() => Vec::new(),
        Err(error) => return Err(kept::complaint(&error)),
    };
    let of_name = |name: &str| outputs.iter().find(|output| output.name() == name);
    let mut fetched = Vec::new();
    let mut has_log_file = false;
    if let Some(output) = of_name(FILES) {
        let saved = Spinner::new("fetching the files").around(unpacked(output, dir, replaces, job_id)).await?;
        let mut files = saved.unpacked.written.iter().chain(&saved.unpacked.unchanged);
        has_log_file = files.any(|path| path == Path::new(LOG));
        fetched.push(Fetched { file: saved.folder.clone(), remark: Some(remark(&saved)), ..of(output) });
    }
    let name = if has_log_file { format!("{LOG}-{job_id}") } else { LOG.to_owned() };
    let path = dir.join(name);
    super::check_no_link(&path)?;
    match (of_name(LOG), short) {
        (Some(output), _) => {
            let file = partial(&path)?;
            let file = Spinner::new("fetching the output").around(output.write_to(file)).await;
            finished(file.map_err(|error| kept::complaint(&error))?, &path)?;
            fetched.push(Fetched { file: path, ..of(output) });
        }
        (None, Some(printed)) => {
            let mut file = partial(&path)?;
            std::io::Write::write_all(&mut file, printed.text.as_bytes())
                .map_err(|problem| files::unwritable(&path, &problem))?;
            finished(file, &path)?;
            let shape = vec![printed.text.len() as u64];
            fetched.push(Fetched { name: LOG.to_owned(), dtype: "u8", shape, file: path, remark: None });
        }
        (None, None) => {}
    }
    Ok(fetched)
}

async fn unpacked(output: &KeptOutput, dir: &Path, replaces: bool, job_id: JobId) -> Result<Saved, Complaint> {
    let file: File = tempfile::tempfile().map_err(|error| {
        Complaint::new(Exit::Internal, format!("failed to make a temporary file: {error}"))
            .hint("check that TMPDIR names a folder that you may write to")
    })?;
    let mut archive = output.write_to(file).await.map_err(|error| kept::complaint(&error))?;
    save(&mut archive, dir, replaces, job_id)
}

fn of(output: &KeptOutput) -> Fetched {
    let (dtype, shape) = (output.dtype().name(), output.shape().to_vec());
    Fetched { name: output.name().to_owned(), dtype, shape, file: Default::default(), remark: None }
}

fn remark(Saved { unpacked, in_the_way, .. }: &Saved) -> String {
    let count = match unpacked.written.len() {
        1 => "1 file".to_owned(),
        many => format!("{many} files"),
    };
    let new = format!("{count}, {}", quantity::bytes(unpacked.bytes));
    match in_the_way {
        Some(path) => format!("{new}; {} exists already, --force replaces it", path.display()),
        None if !unpacked.unchanged.is_empty() => format!("{new}; {} were there already", unpacked.unchanged.len()),
        None => new,
    }
}

fn partial(path: &Path) -> Result<PartialFile, Complaint> {
    PartialFile::create(path).map_err(|problem| files::unwritable(path, &problem))
}

fn finished(file: PartialFile, path: &Path) -> Result<(), Complaint> {
    file.finish().map_err(|problem| files::unwritable(path, &problem))
}
