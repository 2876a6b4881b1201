//! CUDA arrays: descriptions, copies in all directions, and mipmapped arrays.

use std::{ffi::c_void, mem::zeroed, ptr};

use cudarc::driver::{
    CudaContext, DevicePtr, result,
    sys::{self, CUarray_format, CUmemorytype},
};

use crate::platform::{assert_passed, context, in_child, is_child};

const INVALID_VALUE: i32 = 1;
const INVALID_HANDLE: i32 = 400;
const NOT_SUPPORTED: i32 = 801;

const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBE: u32 = 4;
const SPARSE: u32 = 0x40;

const BYTES: CUarray_format = CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8;

fn description([width, height, depth]: [usize; 3], flags: u32) -> sys::CUDA_ARRAY3D_DESCRIPTOR {
    sys::CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: BYTES,
        NumChannels: 2,
        Flags: flags,
    }
}

/// Creates an array of pairs of bytes.
pub fn array(size: [usize; 3], flags: u32) -> sys::CUarray {
    let mut array = ptr::null_mut();
    // SAFETY: the description outlives the call.
    assert_eq!(unsafe { sys::cuArray3DCreate_v2(&mut array, &description(size, flags)) } as i32, 0);
    array
}

fn create(size: [usize; 3], flags: u32) -> i32 {
    let mut array = ptr::null_mut();
    // SAFETY: the description outlives the call.
    unsafe { sys::cuArray3DCreate_v2(&mut array, &description(size, flags)) as i32 }
}

/// Copies `size` bytes, rows and planes between a place in an array and packed host memory.
fn host_copy(array: sys::CUarray, at: [usize; 3], host: *mut c_void, size: [usize; 3], writes: bool) -> i32 {
    let mut copy = between_arrays(size);
    if writes {
        (copy.srcMemoryType, copy.srcHost) = (CUmemorytype::CU_MEMORYTYPE_HOST, host.cast_const());
        copy.dstArray = array;
        [copy.dstXInBytes, copy.dstY, copy.dstZ] = at;
    } else {
        copy.srcArray = array;
        [copy.srcXInBytes, copy.srcY, copy.srcZ] = at;
        (copy.dstMemoryType, copy.dstHost) = (CUmemorytype::CU_MEMORYTYPE_HOST, host);
    }
    // SAFETY: each caller's memory has the size that it passes.
    unsafe { sys::cuMemcpy3D_v2(&copy) as i32 }
}

/// Describes a copy of this many bytes, rows and planes between the starts of two arrays, whose handles the caller
/// sets.
fn between_arrays([width, height, depth]: [usize; 3]) -> sys::CUDA_MEMCPY3D {
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

pub fn fill(array: sys::CUarray, bytes: &[u8], size: [usize; 3]) {
    assert_eq!(bytes.len(), size.iter().product());
    assert_eq!(host_copy(array, [0; 3], bytes.as_ptr().cast_mut().cast(), size, true), 0);
}

pub fn read(array: sys::CUarray, at: [usize; 3], size: [usize; 3]) -> Vec<u8> {
    let mut bytes = vec![0u8; size.iter().product()];
    assert_eq!(host_copy(array, at, bytes.as_mut_ptr().cast(), size, false), 0);
    bytes
}

#[test]
fn an_array_tells_how_it_was_made() {
    context();
    // SAFETY: every result has its place.
    unsafe {
        let flat = sys::CUDA_ARRAY_DESCRIPTOR { Width: 7, Height: 3, Format: BYTES, NumChannels: 4 };
        let mut array = ptr::null_mut();
        assert_eq!(sys::cuArrayCreate_v2(&mut array, &flat) as i32, 0);
        let (mut told, mut solid) = (sys::CUDA_ARRAY_DESCRIPTOR { Width: 0, ..flat }, description([0; 3], 0));
        assert_eq!(sys::cuArrayGetDescriptor_v2(&mut told, array) as i32, 0);
        assert_eq!(told, flat);
        assert_eq!(sys::cuArray3DGetDescriptor_v2(&mut solid, array) as i32, 0);
        assert_eq!((solid.Width, solid.Height, solid.Depth, solid.Flags), (7, 3, 0, 0));
        let mut needs: sys::CUDA_ARRAY_MEMORY_REQUIREMENTS = zeroed();
        assert_eq!(sys::cuArrayGetMemoryRequirements(&mut needs, array, 0) as i32, 0);
        assert_eq!(needs.size, 7 * 3 * 4);
        assert_eq!(sys::cuArrayDestroy(array) as i32, 0);
        assert_eq!(sys::cuArrayDestroy(array) as i32, INVALID_HANDLE);
        assert_eq!(sys::cuArrayGetDescriptor_v2(&mut told, array) as i32, INVALID_HANDLE);
    }
}

#[test]
fn shapes_and_formats_that_there_are_not_are_refused() {
    context();
    assert_eq!(create([0, 4, 0], 0), INVALID_VALUE);
    assert_eq!(create([4, 0, 4], 0), INVALID_VALUE);
    assert_eq!(create([4, 5, 6], CUBE), INVALID_VALUE);
    assert_eq!(create([4, 4, 5], CUBE), INVALID_VALUE);
    assert_eq!(create([4, 4, 7], CUBE | LAYERED), INVALID_VALUE);
    assert_eq!(create([4, 0, 0], LAYERED), INVALID_VALUE);
    assert_eq!(create([1 << 20, 0, 0], 0), INVALID_VALUE);
    assert_eq!(create([64, 64, 0], SPARSE), NOT_SUPPORTED);
    assert_eq!(create([32_769, 0, 0], SURFACE), INVALID_VALUE);
    let blocks = CUarray_format::CU_AD_FORMAT_BC1_UNORM;
    let compressed = sys::CUDA_ARRAY3D_DESCRIPTOR { Format: blocks, NumChannels: 4, ..description([64, 64, 0], 0) };
    // SAFETY: the description outlives the call.
    assert_eq!(unsafe { sys::cuArray3DCreate_v2(&mut ptr::null_mut(), &compressed) } as i32, NOT_SUPPORTED);
    let wrong = sys::CUDA_ARRAY_DESCRIPTOR { Width: 4, Height: 0, Format: BYTES, NumChannels: 3 };
    // SAFETY: the description outlives the call.
    assert_eq!(unsafe { sys::cuArrayCreate_v2(&mut ptr::null_mut(), &wrong) } as i32, INVALID_VALUE);
}

#[test]
fn boxes_are_copied_to_and_from_arrays() {
    context();
    let (size, row) = ([5, 4, 3], 10);
    let volume = array(size, 0);
    let sent: Vec<u8> = (0..120).collect();
    fill(volume, &sent, [row, 4, 3]);
    assert_eq!(read(volume, [0; 3], [row, 4, 3]), sent);
    let inner: Vec<u8> =
        (1..3u8).flat_map(|z| (2..4u8).flat_map(move |y| (4..8).map(move |x| z * 40 + y * 10 + x))).collect();
    assert_eq!(read(volume, [4, 2, 1], [4, 2, 2]), inner);
    let mut patch = vec![200u8; 8];
    assert_eq!(host_copy(volume, [2, 1, 2], patch.as_mut_ptr().cast(), [4, 2, 1], true), 0);
    assert_eq!(read(volume, [0, 1, 2], [row, 1, 1]), [90, 91, 200, 200, 200, 200, 96, 97, 98, 99]);
    // Past the end of a row, of the rows, and of the planes.
    for at in [[8, 0, 0], [0, 3, 0], [0, 0, 3]] {
        assert_eq!(host_copy(volume, at, patch.as_mut_ptr().cast(), [4, 2, 1], true), INVALID_VALUE, "{at:?}");
    }
    // Two bytes make a texel.
    assert_eq!(host_copy(volume, [1, 1, 2], patch.as_mut_ptr().cast(), [2, 2, 1], true), INVALID_VALUE);
    // SAFETY: the array is this test's own.
    assert_eq!(unsafe { sys::cuArrayDestroy(volume) } as i32, 0);
    assert_eq!(host_copy(volume, [0; 3], patch.as_mut_ptr().cast(), [4, 2, 1], true), INVALID_HANDLE);
}

#[test]
fn rectangles_go_from_device_memory_to_layers_and_on_to_other_arrays() {
    let stream = context().new_stream().unwrap();
    let layers = array([4, 2, 3], LAYERED);
    let flat = array([4, 2, 0], 0);
    let device = stream.clone_htod(&(0..16u8).collect::<Vec<_>>()).unwrap();
    stream.synchronize().unwrap();
    let mut copy = between_arrays([8, 2, 1]);
    (copy.srcMemoryType, copy.srcDevice) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, device.device_ptr(&stream).0);
    (copy.srcPitch, copy.dstArray, copy.dstZ) = (8, layers, 2);
    // SAFETY: the rows are inside both ends.
    unsafe {
        assert_eq!(sys::cuMemcpy3DAsync_v2(&copy, stream.cu_stream()) as i32, 0);
        stream.synchronize().unwrap();
        assert_eq!(read(layers, [0, 0, 2], [8, 2, 1]), (0..16).collect::<Vec<u8>>());
        assert_eq!(read(layers, [0, 0, 1], [8, 2, 1]), [0; 16]);
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            srcHost: ptr::null(),
            srcDevice: 0,
            srcArray: flat,
            srcPitch: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstHost: ptr::null_mut(),
            dstDevice: 0,
            dstArray: layers,
            dstPitch: 0,
            WidthInBytes: 8,
            Height: 2,
        };
        fill(flat, &(50..66).collect::<Vec<u8>>(), [8, 2, 1]);
        assert_eq!(sys::cuMemcpy2D_v2(&copy) as i32, 0);
        assert_eq!(read(layers, [0; 3], [8, 2, 1]), (50..66).collect::<Vec<u8>>());
        assert_eq!(sys::cuArrayDestroy(layers) as i32, 0);
        assert_eq!(sys::cuArrayDestroy(flat) as i32, 0);
    }
}

#[test]
fn bytes_go_to_and_from_arrays_in_the_order_of_texels() {
    let stream = context().new_stream().unwrap();
    let (one, two) = (array([8, 0, 0], 0), array([8, 0, 0], 0));
    let sent: Vec<u8> = (1..17).collect();
    let mut back = [0u8; 16];
    // SAFETY: the memory has room for what is copied, and outlives the copies.
    unsafe {
        assert_eq!(sys::cuMemcpyHtoA_v2(one, 0, sent.as_ptr().cast(), 16) as i32, 0);
        assert_eq!(sys::cuMemcpyAtoA_v2(two, 4, one, 0, 8) as i32, 0);
        let device = result::malloc_sync(16).unwrap();
        assert_eq!(sys::cuMemcpyAtoD_v2(device, two, 0, 16) as i32, 0);
        assert_eq!(sys::cuMemcpyDtoA_v2(two, 12, device + 4, 4) as i32, 0);
        assert_eq!(sys::cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), two, 0, 16) as i32, 0);
        assert_eq!(back, [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]);
        assert_eq!(sys::cuMemcpyHtoAAsync_v2(two, 2, sent.as_ptr().cast(), 2, stream.cu_stream()) as i32, 0);
        assert_eq!(sys::cuMemcpyAtoHAsync_v2(back.as_mut_ptr().cast(), two, 0, 4, stream.cu_stream()) as i32, 0);
        stream.synchronize().unwrap();
        assert_eq!(back[..4], [0, 0, 1, 2]);
        assert_eq!(sys::cuMemcpyHtoA_v2(one, 1, sent.as_ptr().cast(), 16) as i32, INVALID_VALUE);
        result::free_sync(device).unwrap();
        assert_eq!(sys::cuArrayDestroy(one) as i32, 0);
        assert_eq!(sys::cuArrayDestroy(two) as i32, 0);
    }
}

#[test]
fn levels_of_a_mipmapped_array_are_arrays_that_end_with_it() {
    context();
    // SAFETY: every result has its place.
    unsafe {
        let (mut whole, mut level, mut told) = (ptr::null_mut(), ptr::null_mut(), description([0; 3], 0));
        // At most the levels that are possible: 12, 6, 3 and 1 texels.
        assert_eq!(sys::cuMipmappedArrayCreate(&mut whole, &description([12, 5, 0], 0), 100) as i32, 0);
        assert_eq!(sys::cuMipmappedArrayGetLevel(&mut level, whole, 4) as i32, INVALID_VALUE);
        assert_eq!(sys::cuMipmappedArrayGetLevel(&mut level, whole, 1) as i32, 0);
        assert_eq!(sys::cuArray3DGetDescriptor_v2(&mut told, level) as i32, 0);
        assert_eq!((told.Width, told.Height, told.Depth), (6, 2, 0));
        fill(level, &(0..24).collect::<Vec<u8>>(), [12, 2, 1]);
        assert_eq!(read(level, [2, 1, 0], [4, 1, 1]), [14, 15, 16, 17]);
        assert_eq!(sys::cuArrayDestroy(level) as i32, INVALID_HANDLE);
        assert_eq!(sys::cuMipmappedArrayDestroy(whole) as i32, 0);
        assert_eq!(sys::cuArray3DGetDescriptor_v2(&mut told, level) as i32, INVALID_HANDLE);
        assert_eq!(sys::cuMipmappedArrayDestroy(whole) as i32, INVALID_HANDLE);
    }
}

#[test]
fn arrays_take_device_memory_and_give_it_back() {
    if !is_child() {
        return assert_passed(&in_child("arrays::arrays_take_device_memory_and_give_it_back", &[]));
    }
    let whole = context();
    let free = || result::mem_get_info().unwrap().0;
    let before = free();
    let first = array([1024, 1024, 0], 0);
    assert_eq!(before - free(), 2 << 20);
    // SAFETY: the array is this test's own.
    assert_eq!(unsafe { sys::cuArrayDestroy(first) } as i32, 0);
    assert_eq!(free(), before);
    let context = CudaContext::new_non_primary(0, 0).unwrap();
    context.bind_to_thread().unwrap();
    let second = array([1024, 1024, 0], 0);
    drop(context);
    whole.bind_to_thread().unwrap();
    assert_eq!(free(), before);
    let mut told = description([0; 3], 0);
    // SAFETY: the handle went with its context.
    assert_eq!(unsafe { sys::cuArray3DGetDescriptor_v2(&mut told, second) } as i32, INVALID_HANDLE);
}
