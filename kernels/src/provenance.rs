//! The origin of a kernel's PTX, which is stated in its first line:
//!
//! ```text
//! // built from saxpy.cu blake3:6e0c… by NVRTC 12.9 --gpu-architecture=compute_80
//! ```
//!
//! `compute_80` is the oldest architecture that the catalog supports; drivers compile it for newer ones. NVRTC writes
//! its own PTX version into its output, but a driver refuses PTX of a newer version than it supports. So the committed
//! file has the oldest PTX version with the features that it uses.

/// The version of NVRTC that built the committed PTX.
pub const NVRTC_VERSION: &str = "12.9";

/// The options for NVRTC.
pub const NVRTC_OPTIONS: [&str; 1] = ["--gpu-architecture=compute_80"];

/// The PTX version of the committed files: the oldest one with all features that they use. `sm_80` needs 7.0, and the
/// line numbers of inlined functions need 7.2 (CUDA 11.2).
pub const PTX_VERSION: &str = "7.2";

/// Returns the first line of `<name>.ptx` for this source, without the line end.
pub fn stamp(name: &str, source: &str) -> String {
    let hash = blake3::hash(source.as_bytes());
    format!("// built from {name}.cu blake3:{hash} by NVRTC {NVRTC_VERSION} {}", NVRTC_OPTIONS.join(" "))
}

/// Returns the contents of `<name>.ptx`, from NVRTC's output.
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
