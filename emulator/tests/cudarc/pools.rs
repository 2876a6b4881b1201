//! Memory pools: high-water marks, limits, access, and the pool that a device uses.

use std::{ffi::c_void, ptr};

use cudarc::driver::{
    result,
    sys::{self, CUmemPool_attribute as Attribute},
};

use crate::platform::{code, context};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_SUPPORTED: i32 = 801;

fn properties(bytes_max: usize) -> sys::CUmemPoolProps {
    sys::CUmemPoolProps {
        allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: on_device(0),
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: bytes_max,
        usage: 0,
        reserved: [0; 54],
    }
}

fn on_device(id: i32) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

fn pool(bytes_max: usize) -> sys::CUmemoryPool {
    let mut pool = ptr::null_mut();
    // SAFETY: the properties outlive the call.
    assert_eq!(unsafe { sys::cuMemPoolCreate(&mut pool, &properties(bytes_max)) } as i32, 0);
    pool
}

fn get(pool: sys::CUmemoryPool, attribute: Attribute) -> u64 {
    let mut value = 0u64;
    // SAFETY: the place is as wide as the widest attribute.
    let status = unsafe { sys::cuMemPoolGetAttribute(pool, attribute, ptr::from_mut(&mut value).cast::<c_void>()) };
    assert_eq!(status as i32, 0);
    value
}

fn set(pool: sys::CUmemoryPool, attribute: Attribute, mut value: u64) -> i32 {
    // SAFETY: the value is as wide as the widest attribute.
    unsafe { sys::cuMemPoolSetAttribute(pool, attribute, ptr::from_mut(&mut value).cast::<c_void>()) as i32 }
}

#[test]
fn a_pool_counts_what_is_drawn_and_the_most_of_it() {
    let stream = context().new_stream().unwrap();
    let pool = pool(0);
    use Attribute::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as RESERVED_HIGH,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT as USED, CU_MEMPOOL_ATTR_USED_MEM_HIGH as USED_HIGH,
    };
    // SAFETY: what is drawn is given back in the stream's order.
    unsafe {
        let on = stream.cu_stream();
        let (mut first, mut second) = (0, 0);
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut first, 1000, pool, on) as i32, 0);
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut second, 500, pool, on) as i32, 0);
        result::free_async(first, on).unwrap();
        stream.synchronize().unwrap();
        assert_eq!((get(pool, USED), get(pool, USED_HIGH), get(pool, RESERVED_HIGH)), (500, 1500, 1500));
        assert_eq!(set(pool, USED_HIGH, 0), 0);
        assert_eq!((get(pool, USED_HIGH), get(pool, RESERVED_HIGH)), (500, 1500));
        assert_eq!(set(pool, USED_HIGH, 7), INVALID_VALUE);
        assert_eq!(set(pool, USED, 0), INVALID_VALUE);
        assert_eq!(set(pool, THRESHOLD, u64::MAX), 0);
        assert_eq!(get(pool, THRESHOLD), u64::MAX);
        assert_eq!(sys::cuMemPoolTrimTo(pool, 0) as i32, 0);
        result::free_async(second, on).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(get(pool, USED), 0);
        assert_eq!(sys::cuMemPoolDestroy(pool) as i32, 0);
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut first, 16, pool, on) as i32, 400);
    }
}

#[test]
fn a_pool_gives_no_more_than_its_size() {
    let stream = context().new_stream().unwrap();
    let pool = pool(4096);
    // SAFETY: what is drawn is given back.
    unsafe {
        let (mut first, mut second) = (0, 0);
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut first, 4000, pool, stream.cu_stream()) as i32, 0);
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut second, 97, pool, stream.cu_stream()) as i32, OUT_OF_MEMORY);
        result::free_async(first, stream.cu_stream()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(sys::cuMemAllocFromPoolAsync(&mut second, 97, pool, stream.cu_stream()) as i32, 0);
        result::free_async(second, stream.cu_stream()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(sys::cuMemPoolDestroy(pool) as i32, 0);
    }
}

#[test]
fn the_own_device_has_access_and_nothing_is_shared_with_processes() {
    context();
    let pool = pool(0);
    let (mut flags, mut location) = (sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, on_device(0));
    // SAFETY: places and descriptions outlive the calls.
    unsafe {
        assert_eq!(sys::cuMemPoolGetAccess(&mut flags, pool, &mut location) as i32, 0);
        assert_eq!(flags, sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        let mut access = sys::CUmemAccessDesc { location, flags };
        assert_eq!(sys::cuMemPoolSetAccess(pool, &access, 1) as i32, 0);
        access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        assert_eq!(sys::cuMemPoolSetAccess(pool, &access, 1) as i32, INVALID_VALUE);
        let mut shared = properties(0);
        shared.handleTypes = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut other = ptr::null_mut();
        assert_eq!(sys::cuMemPoolCreate(&mut other, &shared) as i32, NOT_SUPPORTED);
        assert_eq!(sys::cuMemPoolDestroy(pool) as i32, 0);
    }
}

#[test]
fn a_device_keeps_its_default_pool() {
    context();
    // SAFETY: that the default pool can't be destroyed is what is tested.
    unsafe {
        let device = result::device::get(0).unwrap();
        let default = result::device::get_default_mem_pool(device).unwrap();
        assert_eq!(sys::cuMemPoolDestroy(default) as i32, INVALID_VALUE);
        assert_eq!(code(result::device::get_mem_pool(device)), 0);
    }
}
