//! The bytes of kept outputs. The ledger has small ones; the blob store has the others.

use std::convert::Infallible;

use axum::{
    Extension,
    body::Body,
    extract::{Path, Query, State},
    http::header,
    response::Response,
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use gpufleet::schema::{BlobDigest, host_program::FILES};
use gpufleet_blobs::{BlobError, BlobStore};
use gpufleet_service::{
    chain,
    problem::{Problem, ProblemKind},
    server::{Hangup, Peer},
};
use serde::Deserialize;

use crate::{access::Viewer, state::Shared};

/// A larger output would fill the console's memory, and the browser's.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;
/// A part of a download. The next one is asked for when the viewer has room for it.
const PART_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// NumPy's file format.
    #[default]
    Npy,
    /// Little-endian elements.
    Raw,
    /// The bytes of a file, as host programs leave them: an archive, or a text.
    File,
}

/// As the read API describes a job, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Detail {
    outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
struct Output {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    digest: Option<String>,
    is_expired: bool,
}

pub(crate) async fn download(
    State(console): Shared,
    Path((job, name)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
    Extension(viewer): Extension<Viewer>,
    Extension(Peer(address)): Extension<Peer>,
    Extension(connection): Extension<Hangup>,
) -> Result<Response, Problem> {
    let turn = console.downloads.turn((address.ip(), viewer.name), connection).await?;
    let page = console.feed.upstream().get(&path(&["v1", "jobs", &job])).await?;
    let detail: Detail =
        serde_json::from_slice(&page).map_err(|_| refused("the read API describes the job in an unknown way"))?;
    let output = detail.outputs.into_iter().find(|output| output.name == name).filter(|output| !output.is_expired);
    let output = output.ok_or_else(|| {
        let next = "see the outputs on the job's page";
        Problem::new(
            ProblemKind::NotFound,
            "There is no such output",
            "the job keeps no output of this name, or it has expired",
            next,
        )
    })?;
    let bytes = match &output.digest {
        Some(digest) => stored(console.blobs.as_ref(), digest, &output).await?,
        None => console.feed.upstream().get(&path(&["v1", "jobs", &job, "outputs", &name])).await?,
    };
    let (header, extension) = match wanted.format {
        Format::Raw => (Vec::new(), "bin"),
        Format::File if output.name == FILES => (Vec::new(), "tar"),
        Format::File => (Vec::new(), "txt"),
        Format::Npy => (npy_header(&output), "npy"),
    };
    // The turn ends with the last part, or when the viewer leaves.
    let length = header.len() + bytes.len();
    let body = Body::from_stream(parts(header.into(), bytes).inspect(move |_| turn.moved()));
    let file = format!("attachment; filename=\"{}.{extension}\"", file_name(&output.name));
    Ok(Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_DISPOSITION, file)
        .header(header::CONTENT_LENGTH, length)
        .body(body)
        .expect("the file's name has letters, digits and a few signs"))
}

/// The header, and the bytes in parts.
fn parts(header: Bytes, bytes: Bytes) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let parts = stream::unfold(bytes, async |mut rest| {
        let part = rest.split_to(rest.len().min(PART_BYTES));
        (!part.is_empty()).then_some((part, rest))
    });
    stream::once(async { header }).chain(parts).map(Ok)
}

async fn stored(store: Option<&BlobStore>, digest: &str, output: &Output) -> Result<Bytes, Problem> {
    let store = store.ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "The output can't be read",
            "it is in the blob store, and the console was started without one",
            "start the console with --blobs, or use `gpufleet fetch`",
        )
    })?;
    let digest: BlobDigest = digest.parse().map_err(|_| refused("its digest is unknown"))?;
    let bytes = bytes_of(output).filter(|bytes| *bytes <= OUTPUT_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| refused("it is larger than 256 MiB; use `gpufleet fetch`"))?;
    store.view(digest, bytes).await.map(Bytes::from_owner).map_err(|error| unreadable(&error))
}

fn unreadable(error: &BlobError) -> Problem {
    tracing::warn!(error = %chain(error), "output not read");
    match error {
        BlobError::Missing { .. } => refused("the blob store does not have it any more"),
        _ => refused("the blob store can't be read; its operator finds the reason in the console's log"),
    }
}

fn refused(why: &'static str) -> Problem {
    Problem::new(ProblemKind::NotFound, "The output can't be read", why, "try again later, or use `gpufleet fetch`")
}

/// A path of the read API. Names may have any characters.
fn path(segments: &[&str]) -> String {
    let mut url = reqwest::Url::parse("http://api").expect("the constant is a URL");
    url.path_segments_mut().expect("URLs of this scheme have paths").extend(segments);
    url.path().to_owned()
}

fn bytes_of(output: &Output) -> Option<u64> {
    let size = match output.dtype.as_str() {
        "bool" | "i8" | "u8" => 1,
        "i16" | "u16" | "f16" | "bf16" => 2,
        "i32" | "u32" | "f32" => 4,
        "i64" | "u64" | "f64" => 8,
        _ => return None,
    };
    output.shape.iter().try_fold(size, |bytes: u64, extent| bytes.checked_mul(*extent))
}

/// The beginning of a file in NumPy's format 1.0. NumPy has no bf16, so those elements are two bytes without a meaning.
fn npy_header(output: &Output) -> Vec<u8> {
    let descr = match output.dtype.as_str() {
        "bool" => "|b1",
        "i8" => "|i1",
        "u8" => "|u1",
        "i16" => "<i2",
        "u16" => "<u2",
        "f16" => "<f2",
        "i32" => "<i4",
        "u32" => "<u4",
        "f32" => "<f4",
        "i64" => "<i8",
        "u64" => "<u8",
        "f64" => "<f8",
        _ => "|V2",
    };
    let shape: String = output.shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    // The elements begin at a multiple of 64 bytes; ten bytes come before the text.
    text.extend(std::iter::repeat_n(' ', (64 - (text.len() + 11) % 64) % 64));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("a shape has few dimensions");
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], text.as_bytes()].concat()
}

fn file_name(name: &str) -> String {
    let plain =
        |character: char| if character.is_ascii_alphanumeric() || "-_.".contains(character) { character } else { '_' };
    name.chars().take(100).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(dtype: &str, shape: &[u64]) -> Output {
        Output { name: "y".to_owned(), dtype: dtype.to_owned(), shape: shape.to_vec(), digest: None, is_expired: false }
    }

    #[test]
    fn a_file_of_numpy_begins_with_its_shape() {
        for (shape, text) in [(&[][..], "()"), (&[3][..], "(3,)"), (&[2, 3][..], "(2, 3,)")] {
            let header = npy_header(&output("f32", shape));
            assert_eq!(header.len() % 64, 0);
            let text = format!("'shape': {text}");
            assert!(String::from_utf8_lossy(&header).contains(&text), "{:?}", String::from_utf8_lossy(&header));
        }
    }

    #[test]
    fn names_are_segments_of_a_path_and_plain_names_of_files() {
        assert_eq!(path(&["v1", "jobs", "..", "a/b?c#d"]), "/v1/jobs/a%2Fb%3Fc%23d");
        assert_eq!(file_name("../a\"b\n<script>"), ".._a_b__script_");
        assert_eq!(bytes_of(&output("f64", &[2, 3])), Some(48));
        assert_eq!(bytes_of(&output("f64", &[u64::MAX, 3])), None);
    }
}
