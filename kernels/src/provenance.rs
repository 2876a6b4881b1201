//! Where a kernel's PTX comes from, told by its first line.
//!
//! ```text
//! // built from saxpy.cu blake3:6e0c… by NVRTC 12.9 --gpu-architecture=compute_80
//! ```
//!
//! `compute_80` is the oldest architecture that the catalog runs on; a driver compiles it for everything newer. NVRTC writes its own PTX
//! version into what it makes, needed or not, and a driver refuses every text with a newer version than it knows: so the text says the
//! version that it needs.

/// The NVRTC that the committed PTX comes from.
pub const NVRTC_VERSION: &str = "12.9";

/// The options that it is given, and no others.
pub const NVRTC_OPTIONS: [&str; 1] = ["--gpu-architecture=compute_80"];

/// The oldest PTX that has all that these texts are made of: 7.0 came with `sm_80`, 7.2 (CUDA 11.2) with the lines of inlined functions.
pub const PTX_VERSION: &str = "7.2";

/// The first line of `<name>.ptx` for this source, without its end of line.
pub fn stamp(name: &str, source: &str) -> String {
    let hash = blake3::hash(source.as_bytes());
    format!("// built from {name}.cu blake3:{hash} by NVRTC {NVRTC_VERSION} {}", NVRTC_OPTIONS.join(" "))
}

/// The file `<name>.ptx`, from what NVRTC answered.
pub fn stamped(name: &str, source: &str, ptx: &str) -> String {
    let mut text = stamp(name, source);
    for line in ptx.trim_end_matches(['\0', '\n']).lines() {
        text.push('\n');
        match line.starts_with(".version ") {
            true => text.extend([".version ", PTX_VERSION]),
            false => text.push_str(line),
        }
    }
    text + "\n"
}
