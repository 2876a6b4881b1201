//! `cuGetProcAddress`: finds functions by their names in the C headers, which omit the version. A name means the latest
//! version that is not newer than the CUDA version for which the caller was built.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    calls::{Call, calls},
    status::{Answer, Status},
};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`; without either flag the
/// first applies.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;
/// A name in the headers that got the function of another name: since this version, by this symbol.
const RENAMED: (&str, i32, &str) = ("cuGraphInstantiate", 12_000, "cuGraphInstantiateWithFlags");

/// What a name leads to (`CUdriverProcAddressQueryResult`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The symbol of a function.
    Symbol(&'static str),
    Nowhere,
    /// The function has no version that is as old as the caller.
    OnlyLater,
}

/// A version of a function.
#[derive(Debug, Clone, Copy)]
struct Version {
    since: i32,
    symbol: &'static str,
    twin: Option<&'static str>,
}

/// The versions of each name in the headers.
static VERSIONS: LazyLock<HashMap<&'static str, Vec<Version>>> = LazyLock::new(versions);

impl Found {
    pub fn number(self) -> u32 {
        match self {
            Self::Symbol(_) => 0,
            Self::Nowhere => 1,
            Self::OnlyLater => 2,
        }
    }
}

/// Finds the function that a caller asks for, with the arguments of `cuGetProcAddress`.
pub fn find(name: &[u8], version: i32, flags: u64) -> Answer<Found> {
    let is_per_thread = match flags {
        0 | LEGACY_STREAM => false,
        PER_THREAD_STREAM => true,
        _ => return Err(Status::InvalidValue),
    };
    let Some(versions) = std::str::from_utf8(name).ok().and_then(|name| VERSIONS.get(name)) else {
        return Ok(Found::Nowhere);
    };
    let fitting = versions.iter().filter(|known| known.since <= version).max_by_key(|known| known.since);
    let Some(Version { symbol, twin, .. }) = fitting else { return Ok(Found::OnlyLater) };
    Ok(Found::Symbol(twin.filter(|_| is_per_thread).unwrap_or(symbol)))
}

fn versions() -> HashMap<&'static str, Vec<Version>> {
    let mut all = HashMap::<_, Vec<_>>::new();
    for Call { symbol, since, twin } in calls() {
        let Some(since) = since else { continue };
        all.entry(name(symbol)).or_default().push(Version { since, symbol, twin });
        if symbol == RENAMED.2 {
            all.entry(RENAMED.0).or_default().push(Version { since: RENAMED.1, symbol, twin });
        }
    }
    all
}

/// Returns a symbol's name in the headers.
fn name(symbol: &'static str) -> &'static str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, LEGACY_STREAM, PER_THREAD_STREAM, find};
    use crate::status::Status;

    fn found(name: &str, version: i32, flags: u64) -> Found {
        find(name.as_bytes(), version, flags).unwrap_or_else(|status| panic!("{name}: {status:?}"))
    }

    #[test]
    fn a_name_means_the_latest_version_that_the_caller_knows() {
        assert_eq!(found("cuMemAlloc", 12_080, 0), Found::Symbol("cuMemAlloc_v2"));
        assert_eq!(found("cuMemAlloc", 3_010, 0), Found::OnlyLater);
        assert_eq!(found("cuMemPrefetchAsync", 12_010, 0), Found::Symbol("cuMemPrefetchAsync"));
        assert_eq!(found("cuMemPrefetchAsync", 12_020, LEGACY_STREAM), Found::Symbol("cuMemPrefetchAsync_v2"));
        assert_eq!(found("cuLaunchKernelEx", 11_050, 0), Found::OnlyLater);
        assert_eq!(found("cuGraphInstantiate", 12_000, 0), Found::Symbol("cuGraphInstantiateWithFlags"));
        assert_eq!(found("cuGraphInstantiate", 11_080, 0), Found::OnlyLater);
        assert_eq!(found("cuMemAlloc_v2", 12_080, 0), Found::Nowhere);
        assert_eq!(found("cuMakeCoffee", 12_080, 0), Found::Nowhere);
        assert_eq!(find(b"cuMemAlloc", 12_080, 3), Err(Status::InvalidValue));
    }

    #[test]
    fn a_thread_of_its_own_default_stream_gets_the_twins() {
        assert_eq!(found("cuLaunchKernel", 12_080, PER_THREAD_STREAM), Found::Symbol("cuLaunchKernel_ptsz"));
        assert_eq!(found("cuMemcpyHtoD", 12_080, PER_THREAD_STREAM), Found::Symbol("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(found("cuMemAlloc", 12_080, PER_THREAD_STREAM), Found::Symbol("cuMemAlloc_v2"));
    }
}
