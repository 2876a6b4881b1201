//! The web application, which is part of the program.

use std::{collections::HashMap, io::Write as _, sync::LazyLock};

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use rust_embed::RustEmbed;

/// What Vite built from `web/`. `cargo xtask console` checks that it is up to date.
#[derive(RustEmbed)]
#[folder = "web/dist"]
struct Files;

struct Asset {
    content_type: &'static str,
    plain: Bytes,
    /// Each file is compressed once, at the first request for any.
    gzip: Bytes,
}

static ASSETS: LazyLock<HashMap<String, Asset>> = LazyLock::new(|| {
    let files = Files::iter().filter_map(|name| Some((name.to_string(), Files::get(&name)?)));
    files.map(|(name, file)| (name.clone(), Asset::new(&name, file.data.into_owned().into()))).collect()
});

/// The page for every path that belongs to the application.
const INDEX: &str = "index.html";
/// Vite puts a hash of the content into the names of these files.
const HASHED: &str = "assets/";
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// An asset, or the application's page, which finds out by itself what the path means.
pub async fn serve(uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let (name, asset) = match (ASSETS.get(path), ASSETS.get(INDEX)) {
        (Some(asset), _) => (path, asset),
        (None, Some(index)) if !path.starts_with(HASHED) => (INDEX, index),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let takes_gzip = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_compressed = takes_gzip.is_some_and(|value| value.contains("gzip"));
    let body = if is_compressed { &asset.gzip } else { &asset.plain };
    let mut response = Response::builder()
        .header(header::CONTENT_TYPE, asset.content_type)
        .header(header::CACHE_CONTROL, if name.starts_with(HASHED) { FOR_EVER } else { "no-cache" })
        .header(header::VARY, "accept-encoding");
    if is_compressed {
        response = response.header(header::CONTENT_ENCODING, "gzip");
    }
    response.body(Body::from(body.clone())).expect("the headers are constants")
}

impl Asset {
    fn new(name: &str, plain: Bytes) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain).expect("writing to memory does not fail");
        let gzip = encoder.finish().expect("writing to memory does not fail").into();
        Self { content_type: content_type(name), plain, gzip }
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HTML, style and script of the first page.
    const FIRST_LOAD_BYTES_MAX: usize = 150_000;

    #[test]
    fn the_first_load_is_small() {
        let size: usize = ASSETS.values().map(|asset| asset.gzip.len()).sum();
        assert!(size > 10_000, "the application is not built: run `cargo xtask console`");
        assert!(size <= FIRST_LOAD_BYTES_MAX, "{size} bytes");
    }

    #[test]
    fn the_page_names_no_foreign_origin() {
        let index = String::from_utf8(ASSETS[INDEX].plain.to_vec()).unwrap();
        assert!(!index.contains("//") && !index.contains("<style") && !index.contains("onload"), "{index}");
    }
}
