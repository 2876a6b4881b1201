use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

use super::{ALLOCATION_ALIGN, Memory};

#[test]
fn freed_memory_comes_back_zeroed_and_whole() {
    let memory = Memory::new(1 << 20).unwrap();
    let first = memory.alloc(10_000).unwrap();
    memory.fill8(first, 7, 10_000).unwrap();
    memory.free(first).unwrap();
    assert_eq!(memory.info(), (1 << 20, 1 << 20));
    let again = memory.alloc(1 << 20).unwrap();
    let mut bytes = vec![1u8; 10_000];
    // SAFETY: the vector is writable for its length.
    unsafe { memory.copy_out(bytes.as_mut_ptr(), again, 10_000).unwrap() };
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn the_last_byte_is_inside_and_the_next_is_not() {
    let memory = Memory::new(1 << 20).unwrap();
    let address = memory.alloc(5).unwrap();
    assert!(memory.fill8(address, 1, 5).is_ok());
    assert!(memory.fill8(address, 1, 6).is_err());
    assert!(memory.fill8(address + 5, 1, 1).is_err());
    assert!(memory.fill32(address, 1, u64::MAX).is_err());
    assert!(memory.free(address + 1).is_err());
}

#[test]
fn host_memory_is_reachable_only_while_mapped() {
    let memory = Memory::new(1 << 20).unwrap();
    let mut host = vec![0u8; 64];
    let address = host.as_mut_ptr();
    assert!(memory.fill8(address as u64, 3, 64).is_err());
    assert!(memory.map_host(address, 64));
    assert!(!memory.map_host(address, 8));
    assert!(memory.fill8(address as u64, 3, 64).is_ok());
    assert!(memory.free(address as u64).is_err());
    assert!(memory.unmap_host(address));
    assert!(!memory.unmap_host(address));
    assert!(host.iter().all(|byte| *byte == 3));
}

#[test]
fn kernels_only_read_protected_memory_until_the_host_writes_to_it() {
    let memory = Memory::new(1 << 20).unwrap();
    let (address, other) = (memory.alloc(64).unwrap(), memory.alloc(64).unwrap());
    memory.protect(address).unwrap();
    assert_eq!(memory.find_for_kernel(address + 8, true), None);
    assert_eq!(memory.find_for_kernel(address + 8, false), Some((address, 64)));
    assert_eq!(memory.find_for_kernel(other, true), Some((other, 64)));
    memory.fill8(other, 1, 64).unwrap();
    assert_eq!(memory.find_for_kernel(address, true), None, "another range was written");
    memory.copy_within(address, other, 8).unwrap();
    assert_eq!(memory.find_for_kernel(address, true), Some((address, 64)));
    assert!(memory.protect(address + 8).is_err());
    memory.protect(address).unwrap();
    memory.free(address).unwrap();
    assert!(memory.protect(address).is_err());
}

#[test]
fn a_bad_range_is_told_with_the_allocation_around_it() {
    let memory = Memory::new(1 << 20).unwrap();
    let address = memory.alloc(100).unwrap();
    let told = |memory: &Memory| memory.check(address + 90, 20).unwrap_err().to_string();
    let at = format!(
        "failed to access 20 bytes at {:#x}: 90 bytes into the 100-byte allocation at {address:#x}",
        address + 90
    );
    assert_eq!(told(&memory), format!("{at}, with 10 bytes past its end"));
    memory.free(address).unwrap();
    assert_eq!(told(&memory), format!("{at}, which was freed"));
}

proptest! {
    #[test]
    fn live_allocations_never_overlap_and_the_accounts_are_exact(
        steps in prop::collection::vec(prop_oneof![(1u64..9000).prop_map(Some), Just(None)], 1..80),
        pick in any::<prop::sample::Index>(),
    ) {
        let memory = Memory::new(1 << 18).unwrap();
        let mut live: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Some(bytes) => if let Ok(address) = memory.alloc(bytes) {
                    assert_eq!(address % ALLOCATION_ALIGN, 0);
                    assert!(live.iter().all(|(base, size)| address + bytes <= *base || base + size <= address));
                    live.push((address, bytes));
                },
                None if live.is_empty() => {}
                None => {
                    let (address, _) = live.swap_remove(pick.index(live.len()));
                    memory.free(address).unwrap();
                }
            }
            assert_eq!(memory.info().0, (1 << 18) - live.iter().map(|(_, bytes)| bytes).sum::<u64>());
        }
    }
}
