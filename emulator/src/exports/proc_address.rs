//! `cuGetProcAddress`: finds functions by their names in the C headers, which omit the version. A name means the latest
//! version that is not newer than the CUDA version for which the caller was built.

use std::{collections::HashMap, sync::OnceLock};

use gpufleet_surface::argument::{In, Out, Text};

use super::{exports, symbols as all_symbols};
use crate::driver::status::{Answer, Status};

/// Table of functions: name in the headers, CUDA version that introduced it, and symbol. The versions are those in the
/// headers' names of the function types.
const VERSIONS: &str = include_str!("versions.txt");
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`; without either flag the
/// first applies.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;
/// Suffixes of functions that use the calling thread's own default stream.
const PER_THREAD_SUFFIXES: [&str; 2] = ["_ptsz", "_ptds"];

/// `CUdriverProcAddressQueryResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    At(usize),
    Nowhere,
    OnlyLater,
}

/// A version of a function.
#[derive(Debug, Clone, Copy)]
struct Version {
    since: i32,
    symbol: &'static str,
}

exports! {
    fn cuGetProcAddress(name: Text, address: Out<usize>, version: i32, flags: u64) {
        let found = look_up(name, version, flags)?;
        address.fill(|| Ok(found.address()))?;
        if found.address() == 0 { Err(Status::NotFound) } else { Ok(()) }
    }

    /// Unlike the first version, this one succeeds with null if there is no such function.
    fn cuGetProcAddress_v2(name: Text, address: Out<usize>, version: i32, flags: u64, status: Out<u32>) {
        let found = look_up(name, version, flags)?;
        status.set(found.number());
        address.fill(|| Ok(found.address()))
    }

    /// Finds nothing: these are undocumented tables that NVIDIA's own libraries exchange.
    fn cuGetExportTable(table: Out<usize>, id: In<[u8; 16]>) {
        let _ = id;
        table.fill(|| Ok(0))?;
        Err(Status::NotSupported)
    }
}

impl Found {
    fn address(self) -> usize {
        match self {
            Self::At(address) => address,
            Self::Nowhere | Self::OnlyLater => 0,
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::At(_) => 0,
            Self::Nowhere => 1,
            Self::OnlyLater => 2,
        }
    }
}

fn look_up(name: Text, version: i32, flags: u64) -> Answer<Found> {
    let name = name.bytes()?;
    let is_per_thread = match flags {
        0 | LEGACY_STREAM => false,
        PER_THREAD_STREAM => true,
        _ => return Err(Status::InvalidValue),
    };
    Ok(std::str::from_utf8(name).map_or(Found::Nowhere, |name| find(name, version, is_per_thread)))
}

fn find(name: &str, version: i32, is_per_thread: bool) -> Found {
    static ADDRESSES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    static TABLE: OnceLock<HashMap<&'static str, Vec<Version>>> = OnceLock::new();
    let addresses = ADDRESSES.get_or_init(|| all_symbols().into_iter().collect());
    let Some(versions) = TABLE.get_or_init(versions).get(name) else { return Found::Nowhere };
    let fitting = versions.iter().filter(|known| known.since <= version).max_by_key(|known| known.since);
    let Some(Version { symbol, .. }) = fitting else { return Found::OnlyLater };
    let twins = PER_THREAD_SUFFIXES.iter().map(|suffix| format!("{symbol}{suffix}"));
    let twin = twins.filter(|_| is_per_thread).find_map(|twin| addresses.get(twin.as_str()));
    twin.or_else(|| addresses.get(symbol)).map_or(Found::Nowhere, |address| Found::At(*address))
}

fn versions() -> HashMap<&'static str, Vec<Version>> {
    let mut table = HashMap::<_, Vec<_>>::new();
    for line in VERSIONS.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(Ok(since)), Some(symbol)) = (words.next(), words.next().map(str::parse), words.next())
        {
            table.entry(name).or_default().push(Version { since, symbol });
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Found, VERSIONS, all_symbols, find, versions};

    fn address(symbol: &str) -> Found {
        let found = all_symbols().into_iter().find(|(known, _)| *known == symbol);
        found.map_or(Found::Nowhere, |(_, address)| Found::At(address))
    }

    #[test]
    fn a_name_means_the_latest_version_that_the_caller_knows() {
        assert_eq!(find("cuMemAlloc", 12_080, false), address("cuMemAlloc_v2"));
        assert_eq!(find("cuMemAlloc", 3_010, false), Found::OnlyLater);
        assert_eq!(find("cuMemPrefetchAsync", 12_010, false), address("cuMemPrefetchAsync"));
        assert_eq!(find("cuMemPrefetchAsync", 12_020, false), address("cuMemPrefetchAsync_v2"));
        assert_eq!(find("cuLaunchKernelEx", 11_050, false), Found::OnlyLater);
        assert_eq!(find("cuGraphInstantiate", 12_000, false), address("cuGraphInstantiateWithFlags"));
        assert_eq!(find("cuMemAlloc_v2", 12_080, false), Found::Nowhere);
        assert_eq!(find("cuMakeCoffee", 12_080, false), Found::Nowhere);
    }

    #[test]
    fn a_thread_of_its_own_default_stream_gets_the_twins() {
        assert_eq!(find("cuLaunchKernel", 12_080, true), address("cuLaunchKernel_ptsz"));
        assert_eq!(find("cuMemcpyHtoD", 12_080, true), address("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(find("cuMemAlloc", 12_080, true), address("cuMemAlloc_v2"));
        assert_ne!(address("cuLaunchKernel_ptsz"), address("cuLaunchKernel"));
    }

    #[test]
    fn every_exported_function_has_its_version() {
        let known = versions().into_values().flatten().map(|version| version.symbol).collect::<HashSet<_>>();
        assert_eq!(VERSIONS.lines().count(), versions().values().map(Vec::len).sum::<usize>());
        let is_twin = |name: &&str| name.ends_with("_ptsz") || name.ends_with("_ptds");
        let exported = all_symbols().into_iter().map(|(name, _)| name).filter(|name| !is_twin(name));
        assert_eq!(exported.filter(|name| !known.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
