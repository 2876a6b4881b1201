//! `gpufleet blobs get`: copies a blob to a file.

use clap::Args;
use gpufleet::schema::{BlobDigest, task::elements};
use gpufleet_blobs::BlobStore;

use crate::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::Exit,
    files::{self, PartialFile},
    options::BlobOptions,
    output, quantity,
    spec::{ArraySpec, Form},
    waiting::Spinner,
};

#[derive(Debug, Args)]
pub struct GetOptions {
    /// Digest of the blob, as `gpufleet blobs ls` prints it
    digest: BlobDigest,
    /// File to write, which must not exist. A .npy file needs the dtype and the shape, as in x.npy:f32[480,640]; any other file gets the
    /// raw bytes
    #[arg(long, value_name = "FILE")]
    out: ArraySpec,
    #[command(flatten)]
    store: BlobOptions,
}

pub async fn get(options: &GetOptions) -> Result<Exit, Complaint> {
    let GetOptions { digest, out: ArraySpec { path, form }, store } = options;
    files::check_writable(path)?;
    if path.exists() {
        return Err(Complaint::bad_input(format!("failed to write {}: it exists already", path.display()))
            .hint("choose another name; the file is not overwritten"));
    }
    let store = connection::blob_store(store).await?;
    let bytes = length(&store, *digest, form.as_ref()).await?;
    let file = files::begin(path, form.as_ref().map(|form| (form.dtype, form.shape.as_slice())))?;
    Spinner::new(format!("reading {}", path.display())).around(copy(&store, *digest, bytes, file)).await?;
    output::emit(&format!("{} written to {}\n", quantity::bytes(bytes), path.display()))?;
    Ok(Exit::Success)
}

async fn copy(store: &BlobStore, digest: BlobDigest, bytes: u64, file: PartialFile) -> Result<(), Complaint> {
    let path = file.path().to_owned();
    let file = store.read_to(digest, bytes, file).await.map_err(|error| blob_complaint(&error))?;
    file.finish_new().map_err(|problem| files::unwritable(&path, &problem))
}

/// The length of the blob: by its form, or else from the list of blobs.
async fn length(store: &BlobStore, digest: BlobDigest, form: Option<&Form>) -> Result<u64, Complaint> {
    if let Some(Form { dtype, shape }) = form {
        let bytes = elements(shape).and_then(|count| count.checked_mul(dtype.size() as u64));
        return bytes.ok_or_else(|| Complaint::usage(format!("{dtype}{shape:?} is larger than any blob")));
    }
    let entries = Spinner::new("looking for the blob").around(store.list()).await;
    let entries = entries.map_err(|error| blob_complaint(&error))?;
    let found = entries.iter().find(|entry| entry.digest == digest);
    found.map(|entry| entry.bytes).ok_or_else(|| missing(digest))
}

pub fn missing(digest: BlobDigest) -> Complaint {
    Complaint::new(Exit::NotFound, format!("the store has no blob {digest}"))
        .hint("`gpufleet blobs ls` lists its blobs")
}
