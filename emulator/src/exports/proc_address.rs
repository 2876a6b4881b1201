//! `cuGetProcAddress`: functions by the names that the C headers give them, which leave the version out.

use std::{collections::HashMap, sync::OnceLock};

use super::{
    call::{Out, Text},
    exports, symbols as all_symbols,
};
use crate::driver::status::{Answer, Status};

/// Names for which the 12.8 headers mean the first version although there is a second.
const FIRST_VERSION: [&str; 4] = ["cuEventElapsedTime", "cuMemPrefetchAsync", "cuMemAdvise", "cuStreamGetCtx"];
/// `CU_GET_PROC_ADDRESS_SUCCESS` and `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;

exports! {
    fn cuGetProcAddress(name: Text, address: Out<usize>, version: i32, flags: u64) {
        let _ = (version, flags);
        address.fill(|| find(name.name()?))
    }

    fn cuGetProcAddress_v2(name: Text, address: Out<usize>, version: i32, flags: u64, status: Out<u32>) {
        let _ = (version, flags);
        let found = name.name().and_then(find);
        status.set(if found.is_ok() { FOUND } else { NOT_FOUND });
        address.set(found.unwrap_or(0));
        found.map(drop)
    }
}

fn find(name: &str) -> Answer<usize> {
    static TABLE: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    let table = TABLE.get_or_init(|| all_symbols().into_iter().collect());
    let second = if FIRST_VERSION.contains(&name) { None } else { table.get(format!("{name}_v2").as_str()) };
    second.or_else(|| table.get(name)).copied().ok_or(Status::NotFound)
}

#[cfg(test)]
mod tests {
    use super::{all_symbols, find};

    #[test]
    fn a_name_without_a_version_means_what_the_headers_mean() {
        let address = |name: &str| all_symbols().iter().find(|(known, _)| *known == name).map(|(_, address)| *address);
        assert_eq!(find("cuMemAlloc").ok(), address("cuMemAlloc_v2"));
        assert_eq!(find("cuEventElapsedTime").ok(), address("cuEventElapsedTime"));
        assert_eq!(find("cuLaunchKernel").ok(), address("cuLaunchKernel"));
        assert!(find("cuMakeCoffee").is_err());
    }
}
