//! Requests to the compiler and their results.

use std::{collections::BTreeMap, path::PathBuf};

/// CUDA C code and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileRequest {
    pub code: String,
    /// The user's options; see [`options`] for those that are allowed.
    pub options: Vec<String>,
    /// C++ name expressions, such as `kernel<float>`, whose instantiations are compiled and whose symbols are looked up.
    pub expressions: Vec<String>,
    pub target: Target,
    /// NVRTC's library or its folder; if not set, it is searched for.
    pub nvrtc: Option<PathBuf>,
}

/// The target of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// The device's compute capability. The compiler uses the newest architecture that NVRTC knows and the device runs.
    pub arch: (u32, u32),
    /// The driver version of a device that runs cubins. PTX is always made too, in case the driver refuses the cubin.
    pub cubin_for: Option<u32>,
}

/// A compiled program: PTX, a cubin if one was requested and possible, and the compiler's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    pub ptx: String,
    pub cubin: Option<Vec<u8>>,
    /// Warnings and remarks, cut to a maximum length.
    pub log: String,
    /// The compile time in microseconds, also for a cached result.
    pub micros: u64,
    /// NVRTC's version, such as `12.9`.
    pub version: String,
    /// The symbol of each name expression of the request.
    pub symbols: BTreeMap<String, String>,
}

impl Target {
    /// Returns the target for PTX without a cubin, for any device with at least this compute capability.
    pub const fn ptx(arch: (u32, u32)) -> Self {
        Self { arch, cubin_for: None }
    }
}

impl Compiled {
    /// Returns the program's size in the cache, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let symbols: usize = self.symbols.iter().map(|(expression, symbol)| expression.len() + symbol.len()).sum();
        self.ptx.len() + self.cubin.as_ref().map_or(0, Vec::len) + self.log.len() + symbols
    }
}

impl CompileRequest {
    /// Returns a hash of all parts, each with its length, so that different requests have different keys. Only a client that has the code
    /// can compute it.
    pub fn key(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(self.code.as_bytes());
        part(&self.target.arch.0.to_le_bytes());
        part(&self.target.arch.1.to_le_bytes());
        part(&self.target.cubin_for.map_or([0; 5], |driver| {
            let [a, b, c, d] = driver.to_le_bytes();
            [1, a, b, c, d]
        }));
        part(self.nvrtc.as_ref().map_or(b"", |path| path.as_os_str().as_encoded_bytes()));
        for list in [&self.options, &self.expressions] {
            part(&(list.len() as u64).to_le_bytes());
            list.iter().for_each(|text| part(text.as_bytes()));
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_request_is_in_its_key() {
        let request = CompileRequest {
            code: "a".into(),
            options: vec![],
            expressions: vec![],
            target: Target::ptx((8, 0)),
            nvrtc: None,
        };
        let others = [
            CompileRequest { code: "b".into(), ..request.clone() },
            CompileRequest { options: vec!["-G".into()], ..request.clone() },
            CompileRequest { options: vec!["-D".into(), "X".into()], ..request.clone() },
            CompileRequest { options: vec!["-DX".into()], ..request.clone() },
            CompileRequest { expressions: vec!["-DX".into()], ..request.clone() },
            CompileRequest { expressions: vec!["k<float>".into()], ..request.clone() },
            CompileRequest { options: vec!["-DX".into()], expressions: vec!["k<float>".into()], ..request.clone() },
            CompileRequest { target: Target::ptx((9, 0)), ..request.clone() },
            CompileRequest { target: Target { cubin_for: Some(0), ..request.target }, ..request.clone() },
            CompileRequest { target: Target { cubin_for: Some(12_080), ..request.target }, ..request.clone() },
            CompileRequest { nvrtc: Some("/lib".into()), ..request.clone() },
        ];
        let keys: std::collections::HashSet<_> = others.iter().chain([&request]).map(CompileRequest::key).collect();
        assert_eq!(keys.len(), others.len() + 1);
        assert_eq!(request.key(), request.clone().key());
    }
}
