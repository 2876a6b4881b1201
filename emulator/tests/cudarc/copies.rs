//! Memory: allocation, copies in all directions, pinned memory, and exhaustion.

use std::{ffi::c_void, ptr};

use cudarc::driver::{result, sys};

use crate::platform::{assert_passed, code, context, in_child, is_child, library};

#[test]
fn bytes_survive_the_way_to_the_device_and_back() {
    let stream = context().new_stream().unwrap();
    for length in [1, 63, 4096, 1 << 20] {
        let sent = (0..length).map(|index| index as u32).collect::<Vec<_>>();
        let device = stream.clone_htod(&sent).unwrap();
        let copy = stream.clone_dtod(&device).unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), sent);
    }
}

#[test]
fn new_memory_reads_as_zero_where_that_was_asked_for() {
    let stream = context().new_stream().unwrap();
    let zeros = stream.alloc_zeros::<f64>(1000).unwrap();
    assert!(stream.clone_dtoh(&zeros).unwrap().iter().all(|value| *value == 0.0));
}

#[test]
fn fills_repeat_their_value() {
    let context = context();
    let stream = context.new_stream().unwrap();
    // SAFETY: the memory is this test's own, and large enough for each fill.
    unsafe {
        let address = result::malloc_sync(1024).unwrap();
        assert_eq!(sys::cuMemsetD32Async(address, 0x0102_0304, 256, stream.cu_stream()) as i32, 0);
        assert_eq!(sys::cuMemsetD16_v2(address + 512, 0xAABB, 4) as i32, 0);
        let mut bytes = [0u8; 1024];
        stream.synchronize().unwrap();
        result::memcpy_dtoh_sync(&mut bytes, address).unwrap();
        assert_eq!(bytes[..8], [4, 3, 2, 1, 4, 3, 2, 1]);
        assert_eq!(bytes[512..522], [0xBB, 0xAA, 0xBB, 0xAA, 0xBB, 0xAA, 0xBB, 0xAA, 4, 3]);
        result::free_sync(address).unwrap();
    }
}

#[test]
fn a_rectangle_is_copied_row_by_row() {
    context();
    // SAFETY: the descriptor's rows are inside both allocations.
    unsafe {
        let (mut address, mut pitch) = (0, 0);
        assert_eq!(sys::cuMemAllocPitch_v2(&mut address, &mut pitch, 10, 4, 4) as i32, 0);
        assert!(pitch >= 10);
        let sent = (0..40).collect::<Vec<u8>>();
        let mut copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: sent.as_ptr().cast(),
            srcDevice: 0,
            srcArray: ptr::null_mut(),
            srcPitch: 10,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: address,
            dstArray: ptr::null_mut(),
            dstPitch: pitch,
            WidthInBytes: 10,
            Height: 4,
        };
        assert_eq!(sys::cuMemcpy2D_v2(&copy) as i32, 0);
        let mut third_row = [0u8; 10];
        result::memcpy_dtoh_sync(&mut third_row, address + 2 * pitch as u64).unwrap();
        assert_eq!(third_row, sent[20..30]);
        copy.Height = 5000;
        assert_eq!(sys::cuMemcpy2D_v2(&copy) as i32, 1);
        result::free_sync(address).unwrap();
    }
}

#[test]
fn pinned_memory_is_copied_and_known_as_pinned() {
    let context = context();
    let stream = context.new_stream().unwrap();
    // SAFETY: every element is written before it is read.
    let mut pinned = unsafe { context.alloc_pinned::<u32>(1 << 20) }.unwrap();
    pinned.as_mut_slice().unwrap().iter_mut().zip(0..).for_each(|(place, value)| *place = value);
    let device = stream.clone_htod(&pinned).unwrap();
    // SAFETY: as above.
    let mut back = unsafe { context.alloc_pinned::<u32>(1 << 20) }.unwrap();
    stream.memcpy_dtoh(&device, &mut back).unwrap();
    assert_eq!(back.as_slice().unwrap(), pinned.as_slice().unwrap());
}

#[test]
fn registered_memory_is_pinned_until_it_is_unregistered() {
    context();
    let mut memory = vec![0u8; 1 << 16];
    let pointer = memory.as_mut_ptr().cast::<c_void>();
    let (mut address, mut flags) = (0, 0);
    // SAFETY: the memory outlives its registration.
    unsafe {
        assert_eq!(sys::cuMemHostRegister_v2(pointer, memory.len(), 0) as i32, 0);
        assert_eq!(sys::cuMemHostRegister_v2(pointer, 100, 0) as i32, 712);
        assert_eq!(sys::cuMemHostGetDevicePointer_v2(&mut address, pointer, 0) as i32, 0);
        assert_eq!(address, pointer as u64);
        // Only memory that the driver allocated has flags.
        assert_eq!(sys::cuMemHostGetFlags(&mut flags, pointer) as i32, 1);
        assert_eq!(sys::cuMemHostUnregister(pointer) as i32, 0);
        assert_eq!(sys::cuMemHostUnregister(pointer) as i32, 713);
        assert_eq!(sys::cuMemFreeHost(pointer) as i32, 1);
    }
}

#[test]
fn a_pointer_is_known_by_its_kind_and_its_range() {
    context();
    // SAFETY: each attribute is read into a place of its width.
    unsafe {
        let address = result::malloc_sync(1000).unwrap();
        let (mut kind, mut base) = (0u32, 0u64);
        let kind_attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let base_attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
        assert_eq!(sys::cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), kind_attribute, address + 7) as i32, 0);
        assert_eq!(sys::cuPointerGetAttribute(ptr::from_mut(&mut base).cast(), base_attribute, address + 7) as i32, 0);
        assert_eq!((kind, base), (sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32, address));
        result::free_sync(address).unwrap();
        assert_eq!(sys::cuPointerGetAttribute(ptr::from_mut(&mut kind).cast(), kind_attribute, address) as i32, 1);
    }
}

#[test]
fn running_out_of_memory_is_an_error_and_not_the_end() {
    let context = context();
    let stream = context.new_stream().unwrap();
    let total = context.total_mem().unwrap();
    // SAFETY: the memory is not read.
    assert_eq!(code(unsafe { stream.alloc::<u8>(total + 1) }), 2);
    // SAFETY: as above.
    assert_eq!(code(unsafe { result::malloc_sync(usize::MAX / 2) }), 2);
    let device = stream.clone_htod(&[1u8, 2, 3]).unwrap();
    assert_eq!(stream.clone_dtoh(&device).unwrap(), [1, 2, 3]);
}

#[test]
fn memory_that_a_stream_has_yet_to_free_can_be_had_again() {
    if !is_child() {
        return assert_passed(&in_child("copies::memory_that_a_stream_has_yet_to_free_can_be_had_again", &[]));
    }
    let context = context();
    let stream = context.new_stream().unwrap();
    let half = context.total_mem().unwrap() / 8 * 5;
    for _ in 0..4 {
        // SAFETY: the memory is not read.
        drop(unsafe { stream.alloc::<u8>(half) }.unwrap());
    }
    stream.synchronize().unwrap();
}

#[test]
fn a_copy_outside_an_allocation_is_refused() {
    context();
    // SAFETY: the driver checks the device's side of each copy.
    unsafe {
        let address = result::malloc_sync(16).unwrap();
        assert_eq!(code(result::memcpy_htod_sync(address, &[0u8; 17])), 1);
        assert_eq!(code(result::memcpy_dtoh_sync(&mut [0u8; 4], address + 14)), 1);
        assert_eq!(code(result::memcpy_dtoh_sync(&mut [0u8; 4], 0)), 1);
        result::free_sync(address).unwrap();
        assert_eq!(code(result::free_sync(address)), 1);
    }
}

#[test]
fn every_code_has_a_name_and_a_meaning() {
    library();
    let error = result::DriverError(sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(error.error_name().unwrap(), c"CUDA_ERROR_ILLEGAL_ADDRESS");
    assert!(error.error_string().unwrap().to_str().unwrap().contains("memory"));
}

#[test]
fn a_box_is_copied_plane_by_plane() {
    context();
    // SAFETY: the descriptor's rows are inside both sides.
    unsafe {
        // Planes of 4 rows with 8 bytes each, whose inner 2 by 3 bytes are copied to planes of 3 rows with 16 bytes.
        let address = result::malloc_sync(2 * 3 * 16).unwrap();
        result::memset_d8_sync(address, 0xFF, 2 * 3 * 16).unwrap();
        let sent = (0..2 * 4 * 8).collect::<Vec<u8>>();
        let mut copy = sys::CUDA_MEMCPY3D {
            srcXInBytes: 3,
            srcY: 1,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: sent.as_ptr().cast(),
            srcDevice: 0,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: 8,
            srcHeight: 4,
            dstXInBytes: 0,
            dstY: 1,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: address,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: 16,
            dstHeight: 3,
            WidthInBytes: 3,
            Height: 2,
            Depth: 2,
        };
        assert_eq!(sys::cuMemcpy3D_v2(&copy) as i32, 0);
        let mut got = [0u8; 2 * 3 * 16];
        result::memcpy_dtoh_sync(&mut got, address).unwrap();
        let mut expected = [0xFFu8; 2 * 3 * 16];
        for (plane, row, byte) in (0..2).flat_map(|p| (0..2).flat_map(move |r| (0..3).map(move |b| (p, r, b)))) {
            expected[(plane * 3 + row + 1) * 16 + byte] = sent[(plane * 4 + row + 1) * 8 + byte + 3];
        }
        assert_eq!(got, expected);
        copy.Depth = 3;
        assert_eq!(sys::cuMemcpy3D_v2(&copy) as i32, 1);
        // There is no array.
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_ARRAY;
        assert_eq!(sys::cuMemcpy3D_v2(&copy) as i32, 400);
        result::free_sync(address).unwrap();
    }
}

#[test]
fn managed_memory_is_for_both_sides() {
    let context = context();
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    assert_eq!(context.attribute(attribute), Ok(1));
    let mut address = 0;
    // SAFETY: the memory has room for what is written and read.
    unsafe {
        assert_eq!(sys::cuMemAllocManaged(&mut address, 8, 1) as i32, 0);
        (address as *mut u64).write(5);
        let mut word = [0u64];
        result::memcpy_dtoh_sync(&mut word, address).unwrap();
        assert_eq!(word, [5]);
        result::memset_d8_sync(address, 1, 8).unwrap();
        result::ctx::synchronize().unwrap();
        assert_eq!((address as *const u64).read(), 0x0101_0101_0101_0101);
        // Hints are only allowed for managed memory.
        let (stream, plain) = (ptr::null_mut(), result::malloc_sync(8).unwrap());
        let advice = sys::CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
        for (address, bytes, expected) in [(address, 8, 0), (address, 9, 1), (plain, 8, 1)] {
            assert_eq!(sys::cuMemAdvise(address, bytes, advice, 0) as i32, expected);
            assert_eq!(sys::cuMemPrefetchAsync(address, bytes, 0, stream) as i32, expected);
            assert_eq!(sys::cuStreamAttachMemAsync(stream, address, bytes, 1) as i32, expected);
        }
        result::free_sync(plain).unwrap();
        assert_eq!(sys::cuMemAllocManaged(&mut address, 8, 0) as i32, 1);
    }
}
