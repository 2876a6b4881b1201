//! Where a kernel's PTX comes from, told by its first line.
//!
//! ```text
//! // built from saxpy.cu blake3:6e0c… by NVRTC 12.9 --gpu-architecture=compute_80
//! ```
//!
//! PTX made by a newer NVRTC than a driver knows is refused by that driver, so the version is part of the record and not left to whoever
//! builds. `compute_80` is the oldest architecture that the catalog runs on; a driver compiles it for everything newer.

/// The NVRTC that the committed PTX comes from.
pub const NVRTC_VERSION: &str = "12.9";

/// The options that it is given, and no others.
pub const NVRTC_OPTIONS: [&str; 1] = ["--gpu-architecture=compute_80"];

/// The first line of `<name>.ptx` for this source, without its end of line.
pub fn stamp(name: &str, source: &str) -> String {
    let hash = blake3::hash(source.as_bytes());
    format!("// built from {name}.cu blake3:{hash} by NVRTC {NVRTC_VERSION} {}", NVRTC_OPTIONS.join(" "))
}

/// The file `<name>.ptx`, from what NVRTC answered.
pub fn stamped(name: &str, source: &str, ptx: &str) -> String {
    let ptx = ptx.trim_end_matches(['\0', '\n']);
    format!("{}\n{ptx}\n", stamp(name, source))
}
