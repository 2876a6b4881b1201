//! Virtual memory: reserved addresses, physical memory, mappings, and access to them.

use std::{ffi::c_void, ptr};

use cudarc::driver::{result, sys};
use sys::{
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED as SUPPORTED,
    CUmemAccess_flags as Access, CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType as Shared,
    CUpointer_attribute as Attribute,
};

use crate::{
    faults::fault_report,
    platform::{assert_passed, code, context, in_child, is_child},
    programs::STORE,
};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const INVALID_DEVICE: i32 = 101;
const NOT_FOUND: i32 = 500;
const ILLEGAL_ADDRESS: i32 = 700;
const NOT_SUPPORTED: i32 = 801;
const NONE: Access = Access::CU_MEM_ACCESS_FLAGS_PROT_NONE;
const READ: Access = Access::CU_MEM_ACCESS_FLAGS_PROT_READ;
const READ_WRITE: Access = Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const FILE_DESCRIPTOR: Shared = Shared::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const MIB: usize = 1 << 20;
/// Granularity of mappings on the emulated devices, in bytes.
const GRANULE: usize = 2 * MIB;

fn properties(device: i32) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: Shared::CU_MEM_HANDLE_TYPE_NONE,
        location: on_device(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn on_device(id: i32) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

fn reserve(bytes: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the result has a place.
    assert_eq!(unsafe { sys::cuMemAddressReserve(&mut address, bytes, 0, 0, 0) } as i32, 0);
    address
}

fn create(bytes: usize) -> u64 {
    let mut handle = 0;
    // SAFETY: the result has a place, and the properties outlive the call.
    assert_eq!(unsafe { sys::cuMemCreate(&mut handle, bytes, &properties(0), 0) } as i32, 0);
    handle
}

fn map(address: u64, bytes: usize, offset: usize, handle: u64) -> i32 {
    // SAFETY: wrong arguments are refused.
    unsafe { sys::cuMemMap(address, bytes, offset, handle, 0) as i32 }
}

fn unmap(address: u64, bytes: usize) -> i32 {
    // SAFETY: as above.
    unsafe { sys::cuMemUnmap(address, bytes) as i32 }
}

fn set_access(address: u64, bytes: usize, device: i32, flags: Access) -> i32 {
    let access = sys::CUmemAccessDesc { location: on_device(device), flags };
    // SAFETY: the description outlives the call.
    unsafe { sys::cuMemSetAccess(address, bytes, &access, 1) as i32 }
}

fn get_access(address: u64) -> (i32, u64) {
    let mut flags = u64::MAX;
    // SAFETY: the result has a place, and the location outlives the call.
    let status = unsafe { sys::cuMemGetAccess(&mut flags, &on_device(0), address) };
    (status as i32, flags)
}

fn release(handle: u64) -> i32 {
    // SAFETY: a stale handle is refused.
    unsafe { sys::cuMemRelease(handle) as i32 }
}

fn free(address: u64, bytes: usize) -> i32 {
    // SAFETY: a range that is not reserved is refused.
    unsafe { sys::cuMemAddressFree(address, bytes) as i32 }
}

/// Returns reserved addresses with mapped memory that kernels and copies may access.
fn mapped(bytes: usize) -> u64 {
    let (address, handle) = (reserve(bytes), create(bytes));
    assert_eq!((map(address, bytes, 0, handle), release(handle)), (0, 0));
    assert_eq!(set_access(address, bytes, 0, READ_WRITE), 0);
    address
}

fn unmapped(address: u64, bytes: usize) {
    assert_eq!((unmap(address, bytes), free(address, bytes)), (0, 0));
}

/// Returns the code and the value of an attribute of up to eight bytes.
fn attribute(address: u64, attribute: Attribute) -> (i32, u64) {
    let mut value = 0u64;
    // SAFETY: the place is as wide as the widest attribute.
    let status = unsafe { sys::cuPointerGetAttribute(ptr::from_mut(&mut value).cast::<c_void>(), attribute, address) };
    (status as i32, value)
}

fn range(address: u64) -> (i32, u64, usize) {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: both results have a place.
    let status = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut bytes, address) };
    (status as i32, base, bytes)
}

fn read(address: u64, words: usize) -> Vec<u32> {
    let mut found = vec![u32::MAX; words];
    // SAFETY: the vector has the room.
    unsafe { result::memcpy_dtoh_sync(&mut found, address) }.unwrap();
    found
}

fn write(address: u64, words: &[u32]) -> i32 {
    // SAFETY: the slice is there, and the address is checked.
    code(unsafe { result::memcpy_htod_sync(address, words) })
}

/// Runs a kernel in which 32 threads write their numbers from an address on.
fn run_store(address: u64) -> i32 {
    run(STORE, "store", address)
}

/// Runs a kernel with one address parameter in 32 threads.
fn run(text: &str, kernel: &str, address: u64) -> i32 {
    let context = context();
    let kernel = context.load_module(cudarc::nvrtc::Ptx::from_src(text)).unwrap().load_function(kernel).unwrap();
    let stream = context.new_stream().unwrap();
    let mut argument = address;
    let mut arguments = [ptr::from_mut(&mut argument).cast::<c_void>()];
    // SAFETY: the kernel takes one address, which the emulator checks.
    unsafe {
        result::launch_kernel(kernel.cu_function(), (1, 1, 1), (32, 1, 1), 0, stream.cu_stream(), &mut arguments)
            .unwrap();
        code(result::stream::synchronize(stream.cu_stream()))
    }
}

#[test]
fn kernels_and_copies_use_mappings_that_follow_each_other() {
    let context = context();
    assert_eq!(context.attribute(SUPPORTED), Ok(1));
    let (address, handles) = (reserve(3 * GRANULE), [create(GRANULE), create(GRANULE)]);
    for (index, handle) in handles.into_iter().enumerate() {
        assert_eq!(map(address + (index * GRANULE) as u64, GRANULE, 0, handle), 0);
        assert_eq!(release(handle), 0);
    }
    assert_eq!(set_access(address, 2 * GRANULE, 0, READ_WRITE), 0);
    let middle = address + GRANULE as u64 - 64;
    assert_eq!(read(middle, 32), [0; 32], "new memory holds zeros");
    assert_eq!(run_store(middle), 0);
    assert_eq!(read(middle, 32), (0..32).collect::<Vec<_>>());
    let words: Vec<u32> = (0..2 * GRANULE as u32 / 4).collect();
    assert_eq!(write(address, &words), 0);
    assert_eq!(read(address, words.len()), words);
    // SAFETY: the range is mapped.
    unsafe { result::memset_d8_sync(middle, 7, 128) }.unwrap();
    assert_eq!(read(middle, 32), [0x0707_0707; 32]);
    assert_eq!(write(address + 4, &words), INVALID_VALUE, "the last word is past the mappings");
    unmapped_in_two(address);
}

fn unmapped_in_two(address: u64) {
    assert_eq!(unmap(address, GRANULE), 0);
    assert_eq!(free(address, 3 * GRANULE), INVALID_VALUE, "a part is mapped");
    assert_eq!(unmap(address + GRANULE as u64, GRANULE), 0);
    assert_eq!(free(address, 2 * GRANULE), INVALID_VALUE, "these are not the bytes that were reserved");
    assert_eq!(free(address, 3 * GRANULE), 0);
    assert_eq!(free(address, 3 * GRANULE), INVALID_VALUE);
}

/// A kernel that copies 128 bytes from shared memory to the memory of its pointer.
const BULK: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry bulk(.param .u64 to) {\n\
    .reg .b64 %rd<2>;\n.reg .b32 %r<4>;\n.shared .align 16 .b32 s[32];\nld.param.u64 %rd1, [to];\n\
    mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r1, 4, %r2;\nst.shared.u32 [%r3], %r1;\nbar.sync 0;\n\
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 128;\nret;\n}\n";

#[test]
fn a_bulk_copy_goes_on_in_the_next_mapping() {
    if !is_child() {
        let device = [("GPUFLEET_EMULATOR_COMPUTE_CAPABILITY", "9.0")];
        return assert_passed(&in_child("virtual_memory::a_bulk_copy_goes_on_in_the_next_mapping", &device));
    }
    context();
    let (address, handle) = (reserve(2 * GRANULE), create(2 * GRANULE));
    let (second, middle) = (address + GRANULE as u64, address + GRANULE as u64 - 64);
    assert_eq!((map(second, GRANULE, 0, handle), map(address, GRANULE, GRANULE, handle)), (0, 0));
    assert_eq!(set_access(address, 2 * GRANULE, 0, READ_WRITE), 0);
    assert_eq!(run(BULK, "bulk", middle), 0);
    assert_eq!(read(middle, 32), (0..32).collect::<Vec<_>>());
    assert_eq!((unmap(address, 2 * GRANULE), release(handle), free(address, 2 * GRANULE)), (0, 0, 0));
}

#[test]
fn memory_is_the_same_at_all_its_addresses_and_stays_when_unmapped() {
    context();
    let (address, handle) = (reserve(4 * GRANULE), create(2 * GRANULE));
    let second = address + 2 * GRANULE as u64;
    assert_eq!((map(address, 2 * GRANULE, 0, handle), map(second, GRANULE, GRANULE, handle)), (0, 0));
    assert_eq!(set_access(address, 3 * GRANULE, 0, READ_WRITE), 0);
    assert_eq!(write(address + GRANULE as u64, &[1, 2, 3]), 0);
    assert_eq!(read(second, 3), [1, 2, 3]);
    let block = |address| attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
    assert_eq!(block(address), block(second));
    assert_eq!((unmap(address, 2 * GRANULE), unmap(second, GRANULE)), (0, 0));
    assert_eq!(map(second, 2 * GRANULE, 0, handle), 0);
    assert_eq!(get_access(second), (0, 0), "a mapping starts without access");
    assert_eq!(set_access(second, 2 * GRANULE, 0, READ_WRITE), 0);
    assert_eq!(read(second + GRANULE as u64, 3), [1, 2, 3]);
    assert_eq!((unmap(second, 2 * GRANULE), release(handle), free(address, 4 * GRANULE)), (0, 0, 0));
}

#[test]
fn memory_counts_until_its_last_reference_is_gone() {
    if !is_child() {
        let memory = [("GPUFLEET_EMULATOR_MEMORY", "16MiB")];
        return assert_passed(&in_child("virtual_memory::memory_counts_until_its_last_reference_is_gone", &memory));
    }
    context();
    let used = || result::mem_get_info().map(|(free, total)| (total - free) / MIB).unwrap();
    let (before, address) = (used(), reserve(64 * MIB));
    assert_eq!(used(), before, "addresses are no memory");
    let handle = create(8 * MIB);
    assert_eq!(used(), before + 8);
    let (mut other, all) = (0, 16 * MIB);
    // SAFETY: the result has a place.
    assert_eq!(unsafe { sys::cuMemCreate(&mut other, all, &properties(0), 0) } as i32, OUT_OF_MEMORY);
    assert_eq!(map(address, 8 * MIB, 0, handle), 0);
    assert_eq!((release(handle), release(handle)), (0, INVALID_VALUE));
    assert_eq!(map(address + 8 * MIB as u64, 8 * MIB, 0, handle), INVALID_VALUE, "the handle was released");
    assert_eq!(used(), before + 8, "the mapping keeps the memory");
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuMemRetainAllocationHandle(&mut other, (address + 5) as *mut c_void) as i32, 0);
        assert_eq!(unmap(address, 8 * MIB), 0);
        assert_eq!(used(), before + 8, "so does the handle");
        assert_eq!(sys::cuMemRetainAllocationHandle(&mut other, address as *mut c_void) as i32, INVALID_VALUE);
    }
    assert_eq!(map(address, 8 * MIB, 0, other), 0);
    assert_eq!((release(other), unmap(address, 8 * MIB)), (0, 0));
    assert_eq!(used(), before);
    assert_eq!(free(address, 64 * MIB), 0);
}

#[test]
fn sizes_and_addresses_are_multiples_of_the_granularity() {
    context();
    let (mut granularity, mut handle, mut address) = (0, 0, 0);
    let minimum = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: results have places, and properties outlive the calls.
    unsafe {
        assert_eq!(sys::cuMemGetAllocationGranularity(&mut granularity, &properties(0), minimum) as i32, 0);
        assert_eq!(granularity, GRANULE);
        assert_eq!(sys::cuMemCreate(&mut handle, GRANULE + 4096, &properties(0), 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemCreate(&mut handle, 0, &properties(0), 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemCreate(&mut handle, GRANULE, &properties(0), 1) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemCreate(&mut handle, GRANULE, &properties(64), 0) as i32, INVALID_DEVICE);
        assert_eq!(sys::cuMemAddressReserve(&mut address, 4095, 0, 0, 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemAddressReserve(&mut address, GRANULE, 3, 0, 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemAddressReserve(&mut address, GRANULE, 0, 0, 1) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMemAddressReserve(&mut address, usize::MAX & !4095, 0, 0, 0) as i32, OUT_OF_MEMORY);
        assert_eq!(sys::cuMemAddressReserve(&mut address, GRANULE, 64 * MIB, 0, 0) as i32, 0);
        assert!(address.is_multiple_of(64 * MIB as u64));
    }
    assert_eq!(free(address, GRANULE), 0);
}

#[test]
fn a_reservation_starts_where_it_is_wished_if_that_is_free() {
    context();
    // A high address, where no test's memory is.
    let hint = 1u64 << 45;
    let (mut first, mut second) = (0, 0);
    // SAFETY: results have places.
    unsafe {
        assert_eq!(sys::cuMemAddressReserve(&mut first, GRANULE, 0, hint, 0) as i32, 0);
        assert_eq!(sys::cuMemAddressReserve(&mut second, GRANULE, 0, hint, 0) as i32, 0);
    }
    assert_eq!(first, hint);
    assert_ne!(second, hint);
    assert_eq!((free(first, GRANULE), free(second, GRANULE)), (0, 0));
}

#[test]
fn only_reserved_addresses_are_mapped_and_only_once() {
    context();
    let (address, handle) = (reserve(4 * GRANULE), create(2 * GRANULE));
    let at = |granules: usize| address + (granules * GRANULE) as u64;
    let plain = unsafe_alloc(4 * GRANULE);
    assert_eq!(map(plain.next_multiple_of(GRANULE as u64), GRANULE, 0, handle), INVALID_VALUE);
    assert_eq!(map(address + 4096, GRANULE, 0, handle), INVALID_VALUE);
    assert_eq!(map(address, GRANULE, 4096, handle), INVALID_VALUE);
    assert_eq!(map(address, 3 * GRANULE, 0, handle), INVALID_VALUE, "the memory is smaller");
    assert_eq!(map(address, GRANULE, 2 * GRANULE, handle), INVALID_VALUE);
    assert_eq!(map(at(3), 2 * GRANULE, 0, handle), INVALID_VALUE, "the range ends before");
    assert_eq!(map(address, GRANULE, 0, handle + 1), INVALID_VALUE);
    assert_eq!(map(at(1), 2 * GRANULE, 0, handle), 0);
    assert_eq!(map(at(2), GRANULE, 0, handle), INVALID_VALUE);
    assert_eq!(map(address, 2 * GRANULE, 0, handle), INVALID_VALUE);
    for (start, granules) in [(0, 2), (1, 1), (2, 1), (1, 3), (0, 4), (3, 1)] {
        assert_eq!(unmap(at(start), granules * GRANULE), INVALID_VALUE, "{start} {granules}");
        assert_eq!(set_access(at(start), granules * GRANULE, 0, READ), INVALID_VALUE, "{start} {granules}");
    }
    assert_eq!(set_access(at(1), 2 * GRANULE, 64, READ), INVALID_DEVICE);
    // SAFETY: an address at which no allocation starts is refused.
    assert_eq!(code(unsafe { result::free_sync(at(1)) }), INVALID_VALUE, "it is no allocation");
    assert_eq!((unmap(at(1), 2 * GRANULE), release(handle), free(address, 4 * GRANULE)), (0, 0, 0));
    // SAFETY: the memory is used no more.
    unsafe { result::free_sync(plain) }.unwrap();
}

fn unsafe_alloc(bytes: usize) -> u64 {
    // SAFETY: the caller frees it.
    unsafe { result::malloc_sync(bytes) }.unwrap()
}

#[test]
fn copies_and_fills_keep_to_the_access_that_was_set() {
    context();
    let address = mapped(GRANULE);
    assert_eq!(write(address, &[5, 6]), 0);
    assert_eq!(set_access(address, GRANULE, 0, READ), 0);
    assert_eq!(get_access(address + 9), (0, 1));
    assert_eq!(read(address, 2), [5, 6]);
    assert_eq!(write(address, &[7]), INVALID_VALUE);
    // SAFETY: the driver checks addresses, and the word below is there for its copy.
    let fill = || code(unsafe { result::memset_d8_sync(address, 1, 4) });
    assert_eq!(fill(), INVALID_VALUE);
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::memcpy_dtod_sync(address, address + 64, 4) }), INVALID_VALUE);
    assert_eq!(set_access(address, GRANULE, 0, NONE), 0);
    let mut word = [0u32];
    // SAFETY: as above.
    let mut look = || code(unsafe { result::memcpy_dtoh_sync(&mut word, address) });
    assert_eq!((look(), fill()), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!(set_access(address, GRANULE, 0, READ_WRITE), 0);
    assert_eq!((look(), fill()), (0, 0));
    assert_eq!(unmap(address, GRANULE), 0);
    assert_eq!((look(), fill()), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!(free(address, GRANULE), 0);
    assert_eq!((look(), fill()), (INVALID_VALUE, INVALID_VALUE));
}

#[test]
fn what_is_known_about_an_address_is_that_of_its_mapping() {
    context();
    let (address, handle) = (reserve(2 * GRANULE), create(GRANULE));
    assert_eq!(map(address, GRANULE, 0, handle), 0);
    let (inside, behind) = (address + 100, address + GRANULE as u64);
    assert_eq!(range(inside), (0, address, GRANULE));
    assert_eq!(range(behind).0, NOT_FOUND);
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT), (0, 0));
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE), (0, 2));
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), (0, 0));
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), (0, address));
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE), (0, GRANULE as u64));
    assert_eq!(attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_MAPPED), (0, 1));
    assert_eq!(attribute(behind, Attribute::CU_POINTER_ATTRIBUTE_MAPPED), (0, 0));
    assert_eq!(attribute(behind, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE).0, INVALID_VALUE);
    let flags = || attribute(inside, Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
    assert_eq!(flags(), (0, 0));
    assert_eq!((set_access(address, GRANULE, 0, READ_WRITE), flags()), (0, (0, 3)));
    assert_eq!(get_access(behind).0, INVALID_VALUE);
    let mut found = properties(9);
    // SAFETY: the result has a place.
    assert_eq!(unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&mut found, handle) } as i32, 0);
    assert_eq!((found.type_, found.location.id), (properties(0).type_, 0));
    assert_eq!(release(handle), 0);
    unmap(address, GRANULE);
    assert_eq!(free(address, 2 * GRANULE), 0);
}

#[test]
fn memory_is_not_shared_with_processes() {
    context();
    let (mut wanted, mut handle) = (properties(0), 0);
    wanted.requestedHandleTypes = FILE_DESCRIPTOR;
    // SAFETY: results have places, and the refused calls ignore their arguments.
    unsafe {
        assert_eq!(sys::cuMemCreate(&mut handle, GRANULE, &wanted, 0) as i32, NOT_SUPPORTED);
        handle = create(GRANULE);
        let mut descriptor = 0;
        let place = ptr::from_mut(&mut descriptor).cast::<c_void>();
        assert_eq!(sys::cuMemExportToShareableHandle(place, handle, FILE_DESCRIPTOR, 0) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuMemImportFromShareableHandle(&mut 0, place, FILE_DESCRIPTOR) as i32, NOT_SUPPORTED);
    }
    assert_eq!(release(handle), 0);
}

#[test]
fn a_mapping_is_for_the_device_of_its_memory() {
    if !is_child() {
        let devices = [("GPUFLEET_EMULATOR_DEVICES", "2")];
        return assert_passed(&in_child("virtual_memory::a_mapping_is_for_the_device_of_its_memory", &devices));
    }
    context();
    let (address, mut handle) = (reserve(GRANULE), 0);
    // SAFETY: the result has a place, and the properties outlive the call.
    assert_eq!(unsafe { sys::cuMemCreate(&mut handle, GRANULE, &properties(1), 0) } as i32, 0);
    assert_eq!(map(address, GRANULE, 0, handle), 0);
    assert_eq!(set_access(address, GRANULE, 0, READ), INVALID_DEVICE);
    assert_eq!(set_access(address, GRANULE, 0, NONE), 0);
    assert_eq!(set_access(address, GRANULE, 1, READ_WRITE), 0);
    assert_eq!(get_access(address), (0, 0));
    assert_eq!(attribute(address, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), (0, 1));
    assert_eq!((write(address, &[4, 5]), read(address, 2)), (0, vec![4, 5]));
    assert_eq!(run_store(address), ILLEGAL_ADDRESS);
    assert!(fault_report().contains("where no memory of this device is mapped"), "{}", fault_report());
}

/// A kernel that writes 1 to the address in its second two words, and then polls the first word until it is 0.
const LOOK: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry look(.param .u64 at) {\n\
    .reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n.reg .pred %p;\nld.param.u64 %rd1, [at];\n\
    ld.global.u64 %rd2, [%rd1+8];\nst.volatile.global.u32 [%rd2], 1;\nAGAIN:\n\
    ld.volatile.global.u32 %r1, [%rd1];\nsetp.ne.u32 %p, %r1, 0;\n@%p bra AGAIN;\nret;\n}\n";

#[test]
fn a_kernel_survives_that_its_memory_is_unmapped() {
    const TEST: &str = "virtual_memory::a_kernel_survives_that_its_memory_is_unmapped";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[]));
    }
    context();
    let address = mapped(GRANULE);
    // SAFETY: the word lives until the process ends, and only the kernel writes to it.
    let begun: *mut u32 = unsafe { result::malloc_host(4, 0) }.unwrap().cast();
    // SAFETY: as above, and the kernel has not been launched.
    unsafe { begun.write_volatile(0) };
    let place = begun as u64;
    assert_eq!(write(address, &[1, 0, place as u32, (place >> 32) as u32]), 0);
    let ended = std::thread::spawn(move || run(LOOK, "look", address));
    // SAFETY: as above.
    while unsafe { begun.read_volatile() } == 0 {
        assert!(!ended.is_finished(), "the kernel looks until its memory is gone");
        std::thread::yield_now();
    }
    assert_eq!(unmap(address, GRANULE), 0);
    // Zeros end the kernel, unless it looks the address up again first.
    assert!([0, ILLEGAL_ADDRESS].contains(&ended.join().unwrap()));
    assert_eq!(free(address, GRANULE), 0);
    // The process ends here, and the word with it, because after a fault the context frees nothing.
}

#[test]
fn creating_memory_is_an_allocation_to_injected_faults() {
    const TEST: &str = "virtual_memory::creating_memory_is_an_allocation_to_injected_faults";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_FAULTS", "alloc:2=out-of-memory")]));
    }
    context();
    let (first, mut second) = (create(GRANULE), 0);
    // SAFETY: the result has a place, and the properties outlive the call.
    assert_eq!(unsafe { sys::cuMemCreate(&mut second, GRANULE, &properties(0), 0) } as i32, OUT_OF_MEMORY);
    assert_eq!(release(first), 0);
}

/// Runs the kernel in a process of its own, because its fault sticks, and checks the report for `reasons`.
fn faulting(test: &str, address: impl FnOnce() -> u64, reasons: &[&str]) {
    if !is_child() {
        return assert_passed(&in_child(&format!("virtual_memory::{test}"), &[]));
    }
    context();
    assert_eq!(run_store(address()), ILLEGAL_ADDRESS);
    let report = fault_report();
    for reason in reasons.iter().chain(&["kernel `store`"]) {
        assert!(report.contains(reason), "{reason}: {report}");
    }
}

#[test]
fn a_kernel_that_uses_addresses_without_memory_is_told_so() {
    let address = || reserve(GRANULE) + 64;
    let reason = "64 bytes into the 2097152-byte range of addresses that was reserved at 0x";
    faulting(
        "a_kernel_that_uses_addresses_without_memory_is_told_so",
        address,
        &[reason, "where no memory of this device is mapped"],
    );
}

#[test]
fn a_kernel_that_uses_memory_without_access_is_told_so() {
    let address = || {
        let (address, handle) = (reserve(GRANULE), create(GRANULE));
        assert_eq!(map(address, GRANULE, 0, handle), 0);
        address
    };
    let reasons = ["0 bytes into the 2097152-byte mapping at 0x", "no access (cuMemSetAccess)"];
    faulting("a_kernel_that_uses_memory_without_access_is_told_so", address, &reasons);
}

#[test]
fn a_kernel_that_writes_to_memory_for_reading_is_told_so() {
    let address = || {
        let address = mapped(GRANULE);
        assert_eq!(set_access(address, GRANULE, 0, READ), 0);
        address
    };
    faulting("a_kernel_that_writes_to_memory_for_reading_is_told_so", address, &["mapping at 0x", "read-only"]);
}

#[test]
fn a_kernel_that_uses_freed_addresses_is_told_so() {
    let address = || {
        let address = mapped(GRANULE);
        assert_eq!(run_store(address), 0);
        unmapped(address, GRANULE);
        address
    };
    faulting(
        "a_kernel_that_uses_freed_addresses_is_told_so",
        address,
        &["use after free", "reserved at 0x", "then freed"],
    );
}
