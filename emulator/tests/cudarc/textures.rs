//! Texture and surface objects, and the references of modules, from their creation to what kernels read.

use std::{
    ffi::{CString, c_char, c_void},
    mem::zeroed,
    ptr,
    sync::Arc,
};

use cudarc::{
    driver::{
        CudaFunction, CudaStream, LaunchConfig, PushKernelArg, result,
        sys::{
            self, CUaddress_mode as Address, CUarray_format as Format, CUdevice_attribute as Attribute,
            CUfilter_mode as Filter, CUresourcetype as Kind,
        },
    },
    nvrtc::Ptx,
};
use libloading::Symbol;

use crate::{
    arrays::{array, fill, read},
    faults::fault_report,
    platform::{assert_passed, code, context, in_child, is_child, library},
};

const INVALID_VALUE: i32 = 1;
const NOT_FOUND: i32 = 500;
const ILLEGAL_ADDRESS: i32 = 700;
const NOT_SUPPORTED: i32 = 801;

const SURFACE: u32 = 2;
const READ_AS_INTEGER: u32 = 1;
const NORMALIZED: u32 = 2;

/// Kernels of one block, over a texture with two bytes per texel.
const KERNELS: &str = "
.version 7.8
.target sm_80
.address_size 64
.global .texref picture;
.global .surfref canvas;

.visible .entry fetch(.param .u64 out, .param .u64 texture)
{
	.reg .f32 %f<9>;
	.reg .b32 %r<3>;
	.reg .b64 %d<5>;
	ld.param.u64 %d0, [out];
	ld.param.u64 %d1, [texture];
	mov.u32 %r0, %tid.x;
	cvt.rn.f32.u32 %f5, %r0;
	mul.f32 %f5, %f5, 0f3F000000;
	tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d1, {%f5, 0f3F000000}];
	mad.wide.u32 %d0, %r0, 4, %d0;
	st.global.f32 [%d0], %f0;
	ret;
}

.visible .entry count(.param .u64 out, .param .u64 texture)
{
	.reg .b32 %r<9>;
	.reg .b64 %d<5>;
	ld.param.u64 %d0, [out];
	ld.param.u64 %d1, [texture];
	mov.u32 %r0, %tid.x;
	tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r0}];
	mad.wide.u32 %d0, %r0, 4, %d0;
	st.global.u32 [%d0], %r2;
	ret;
}

.visible .entry fetch_picture(.param .u64 out)
{
	.reg .f32 %f<9>;
	.reg .b32 %r<3>;
	.reg .b64 %d<5>;
	ld.param.u64 %d0, [out];
	mov.u32 %r0, %tid.x;
	cvt.rn.f32.u32 %f5, %r0;
	mul.f32 %f5, %f5, 0f3F000000;
	tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [picture, {%f5, 0f3F000000}];
	mad.wide.u32 %d0, %r0, 4, %d0;
	st.global.f32 [%d0], %f0;
	ret;
}

.visible .entry paint(.param .u64 surface)
{
	.reg .b16 %h<3>;
	.reg .b32 %r<3>;
	.reg .b64 %d<5>;
	ld.param.u64 %d1, [surface];
	mov.u32 %r0, %tid.x;
	cvt.u16.u32 %h0, %r0;
	shl.b32 %r1, %r0, 1;
	sust.b.2d.v2.b8.trap [%d1, {%r1, 0}], {%h0, %h0};
	sust.b.2d.b8.trap [canvas, {%r1, 1}], {%h0};
	ret;
}

.visible .entry asks(.param .u64 surface)
{
	.reg .b64 %d<5>; .reg .pred %p;
	ld.param.u64 %d1, [surface];
	istypep.surfref %p, %d1;
	ret;
}

.visible .entry fetch_normalized(.param .u64 out, .param .u64 texture)
{
	.reg .f32 %f<9>;
	.reg .b32 %r<3>;
	.reg .b64 %d<5>;
	ld.param.u64 %d0, [out];
	ld.param.u64 %d1, [texture];
	mov.u32 %r0, %tid.x;
	cvt.rn.f32.u32 %f5, %r0;
	mul.f32 %f5, %f5, 0f3E000000;
	tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d1, {%f5, 0f3F000000}];
	mad.wide.u32 %d0, %r0, 4, %d0;
	st.global.f32 [%d0], %f0;
	ret;
}
";

fn function(name: &str) -> CudaFunction {
    context().load_module(Ptx::from_src(KERNELS)).unwrap().load_function(name).unwrap()
}

fn shape(threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

fn of_array(array: sys::CUarray) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: all zero is a description, and an array is what this kind has.
    unsafe {
        let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
        resource.resType = Kind::CU_RESOURCE_TYPE_ARRAY;
        resource.res.array.hArray = array;
        resource
    }
}

fn of_linear(address: u64, bytes: usize) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: as above, for linear memory.
    unsafe {
        let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
        resource.resType = Kind::CU_RESOURCE_TYPE_LINEAR;
        let linear = &mut resource.res.linear;
        (linear.devPtr, linear.format, linear.numChannels) = (address, Format::CU_AD_FORMAT_UNSIGNED_INT8, 2);
        linear.sizeInBytes = bytes;
        resource
    }
}

fn of_rows(address: u64, [width, height, pitch]: [usize; 3]) -> sys::CUDA_RESOURCE_DESC {
    // SAFETY: as above, for rows.
    unsafe {
        let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
        resource.resType = Kind::CU_RESOURCE_TYPE_PITCH2D;
        let rows = &mut resource.res.pitch2D;
        (rows.devPtr, rows.format, rows.numChannels) = (address, Format::CU_AD_FORMAT_UNSIGNED_INT8, 2);
        (rows.width, rows.height, rows.pitchInBytes) = (width, height, pitch);
        resource
    }
}

fn sampling(filter: Filter, flags: u32) -> sys::CUDA_TEXTURE_DESC {
    // SAFETY: all zero is a description.
    let nothing: sys::CUDA_TEXTURE_DESC = unsafe { zeroed() };
    sys::CUDA_TEXTURE_DESC { addressMode: [Address::CU_TR_ADDRESS_MODE_CLAMP; 3], filterMode: filter, flags, ..nothing }
}

const POINT: Filter = Filter::CU_TR_FILTER_MODE_POINT;
const LINEAR: Filter = Filter::CU_TR_FILTER_MODE_LINEAR;

fn create(resource: &sys::CUDA_RESOURCE_DESC, sampling: &sys::CUDA_TEXTURE_DESC) -> Result<u64, i32> {
    let mut object = 0;
    // SAFETY: the descriptions outlive the call.
    match unsafe { sys::cuTexObjectCreate(&mut object, resource, sampling, ptr::null()) } as i32 {
        0 => Ok(object),
        code => Err(code),
    }
}

/// Returns what eight threads read, half a texel apart.
fn fetched(stream: &Arc<CudaStream>, function: &CudaFunction, texture: Option<u64>) -> Vec<f32> {
    let mut out = stream.alloc_zeros::<f32>(8).unwrap();
    let mut launch = stream.launch_builder(function);
    launch.arg(&mut out);
    let handle = texture.unwrap_or_default();
    if texture.is_some() {
        launch.arg(&handle);
    }
    // SAFETY: the kernel takes these arguments, and has a word for each thread.
    unsafe { launch.launch(shape(8)) }.unwrap();
    stream.clone_dtoh(&out).unwrap()
}

/// Returns four texels whose first bytes are 0, 51, 102 and 255.
fn bytes() -> Vec<u8> {
    vec![0, 1, 51, 2, 102, 3, 255, 4]
}

const POINTS: [f32; 8] = [0.0, 0.0, 0.2, 0.2, 0.4, 0.4, 1.0, 1.0];
const FILTERED: [f32; 8] = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 1.0];

#[track_caller]
fn assert_near(got: &[f32], expected: &[f32]) {
    let near = got.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-6);
    assert!(near && got.len() == expected.len(), "{got:?}, not {expected:?}");
}

#[test]
fn a_texture_of_an_array_is_read_with_and_without_filtering() {
    let stream = context().new_stream().unwrap();
    let (fetch, array) = (function("fetch"), array([4, 1, 0], 0));
    fill(array, &bytes(), [8, 1, 1]);
    let sharp = create(&of_array(array), &sampling(POINT, 0)).unwrap();
    let smooth = create(&of_array(array), &sampling(LINEAR, 0)).unwrap();
    assert_ne!(sharp, smooth);
    assert_near(&fetched(&stream, &fetch, Some(sharp)), &POINTS);
    assert_near(&fetched(&stream, &fetch, Some(smooth)), &FILTERED);
    // SAFETY: the objects and the array are this test's own.
    unsafe {
        assert_eq!(sys::cuTexObjectDestroy(sharp) as i32, 0);
        assert_eq!(sys::cuTexObjectDestroy(sharp) as i32, INVALID_VALUE);
        assert_eq!(sys::cuTexObjectDestroy(smooth) as i32, 0);
        assert_eq!(sys::cuArrayDestroy(array) as i32, 0);
    }
    assert_eq!(create(&of_array(array), &sampling(POINT, 0)), Err(400));
}

#[test]
fn textures_of_linear_memory_follow_what_is_written_there() {
    let stream = context().new_stream().unwrap();
    let (count, fetch) = (function("count"), function("fetch"));
    // SAFETY: the memory is this test's own, and large enough.
    unsafe {
        let address = result::malloc_sync(1024).unwrap();
        result::memcpy_htod_sync(address, &bytes()).unwrap();
        let linear = create(&of_linear(address, 8), &sampling(POINT, READ_AS_INTEGER)).unwrap();
        let counted = || {
            let mut out = stream.alloc_zeros::<u32>(6).unwrap();
            stream.launch_builder(&count).arg(&mut out).arg(&linear).launch(shape(6)).unwrap();
            stream.clone_dtoh(&out).unwrap()
        };
        assert_eq!(counted(), [1, 2, 3, 4, 0, 0]);
        result::memcpy_htod_sync(address + 2, &[9u8, 9]).unwrap();
        assert_eq!(counted(), [1, 9, 3, 4, 0, 0]);
        result::memcpy_htod_sync(address, &bytes()).unwrap();
        let rows = create(&of_rows(address, [4, 1, 32]), &sampling(LINEAR, 0)).unwrap();
        assert_near(&fetched(&stream, &fetch, Some(rows)), &FILTERED);
        // Invalid textures: outside the allocation, misaligned, with overlapping rows.
        assert_eq!(create(&of_linear(address, 2000), &sampling(POINT, 0)), Err(INVALID_VALUE));
        assert_eq!(create(&of_linear(address + 4, 8), &sampling(POINT, 0)), Err(INVALID_VALUE));
        assert_eq!(create(&of_rows(address, [4, 1, 30]), &sampling(POINT, 0)), Err(INVALID_VALUE));
        assert_eq!(create(&of_rows(address, [400, 2, 512]), &sampling(POINT, 0)), Err(INVALID_VALUE));
        // Linear filtering needs float results.
        assert_eq!(create(&of_rows(address, [4, 1, 32]), &sampling(LINEAR, READ_AS_INTEGER)), Err(INVALID_VALUE));
        assert_eq!(create(&of_rows(address, [4, 1, 32]), &sampling(POINT, 0x40)), Err(NOT_SUPPORTED));
        assert_eq!(sys::cuTexObjectDestroy(linear) as i32, 0);
        assert_eq!(sys::cuTexObjectDestroy(rows) as i32, 0);
        result::free_sync(address).unwrap();
    }
}

#[test]
fn objects_tell_how_they_were_made() {
    context();
    let array = array([8, 8, 0], SURFACE);
    let how = sampling(LINEAR, NORMALIZED);
    // SAFETY: every result has its place, and the unions hold what the kinds say.
    unsafe {
        let texture = create(&of_array(array), &how).unwrap();
        let (mut resource, mut told): (sys::CUDA_RESOURCE_DESC, sys::CUDA_TEXTURE_DESC) = (zeroed(), zeroed());
        assert_eq!(sys::cuTexObjectGetResourceDesc(&mut resource, texture) as i32, 0);
        assert_eq!((resource.resType, resource.res.array.hArray), (Kind::CU_RESOURCE_TYPE_ARRAY, array));
        assert_eq!(sys::cuTexObjectGetTextureDesc(&mut told, texture) as i32, 0);
        assert_eq!((told.filterMode, told.flags, told.addressMode), (how.filterMode, how.flags, how.addressMode));
        let mut view: sys::CUDA_RESOURCE_VIEW_DESC = zeroed();
        assert_eq!(sys::cuTexObjectGetResourceViewDesc(&mut view, texture) as i32, INVALID_VALUE);
        let mut surface = 0;
        assert_eq!(sys::cuSurfObjectCreate(&mut surface, &of_array(array)) as i32, 0);
        assert_eq!(sys::cuSurfObjectGetResourceDesc(&mut resource, surface) as i32, 0);
        assert_eq!(resource.res.array.hArray, array);
        assert_eq!(sys::cuSurfObjectGetResourceDesc(&mut resource, texture) as i32, INVALID_VALUE);
        assert_eq!(sys::cuTexObjectGetTextureDesc(&mut told, surface) as i32, INVALID_VALUE);
        assert_eq!(sys::cuSurfObjectDestroy(surface) as i32, 0);
        assert_eq!(sys::cuTexObjectDestroy(texture) as i32, 0);
        assert_eq!(sys::cuArrayDestroy(array) as i32, 0);
    }
}

#[test]
fn a_view_shows_a_level_of_an_array() {
    let stream = context().new_stream().unwrap();
    let fetch = function("fetch_normalized");
    // SAFETY: every result has its place, and the unions hold what the kinds say.
    unsafe {
        let size = sys::CUDA_ARRAY3D_DESCRIPTOR {
            Width: 8,
            Height: 2,
            Depth: 0,
            Format: Format::CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 2,
            Flags: 0,
        };
        let (mut whole, mut level) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(sys::cuMipmappedArrayCreate(&mut whole, &size, 4) as i32, 0);
        assert_eq!(sys::cuMipmappedArrayGetLevel(&mut level, whole, 1) as i32, 0);
        fill(level, &bytes(), [8, 1, 1]);
        let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
        resource.resType = Kind::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource.res.mipmap.hMipmappedArray = whole;
        let mut view: sys::CUDA_RESOURCE_VIEW_DESC = zeroed();
        (view.width, view.height, view.firstMipmapLevel, view.lastMipmapLevel) = (8, 2, 1, 2);
        let (how, mut texture) = (sampling(LINEAR, NORMALIZED), 0);
        assert_eq!(sys::cuTexObjectCreate(&mut texture, &resource, &how, &view) as i32, 0);
        assert_near(&fetched(&stream, &fetch, Some(texture)), &FILTERED);
        let mut told: sys::CUDA_RESOURCE_VIEW_DESC = zeroed();
        assert_eq!(sys::cuTexObjectGetResourceViewDesc(&mut told, texture) as i32, 0);
        assert_eq!((told.width, told.firstMipmapLevel), (8, 1));
        let mut refused = |resource: &sys::CUDA_RESOURCE_DESC, how, view: &sys::CUDA_RESOURCE_VIEW_DESC| {
            assert_eq!(sys::cuTexObjectCreate(&mut texture, resource, &how, view) as i32, INVALID_VALUE);
        };
        refused(&resource, sampling(LINEAR, 0), &view);
        refused(&resource, how, &sys::CUDA_RESOURCE_VIEW_DESC { width: 4, height: 1, ..view });
        refused(&resource, how, &sys::CUDA_RESOURCE_VIEW_DESC { lastMipmapLevel: 4, ..view });
        refused(&resource, how, &sys::CUDA_RESOURCE_VIEW_DESC { lastMipmapLevel: 0, ..view });
        refused(&resource, how, &sys::CUDA_RESOURCE_VIEW_DESC { firstMipmapLevel: 3, ..view });
        // Memory has no views.
        let memory = result::malloc_sync(64).unwrap();
        let whole_rows = sys::CUDA_RESOURCE_VIEW_DESC { firstMipmapLevel: 0, lastMipmapLevel: 0, ..view };
        refused(&of_rows(memory, [8, 2, 32]), sampling(POINT, 0), &whole_rows);
        result::free_sync(memory).unwrap();
        assert_eq!(sys::cuMipmappedArrayDestroy(whole) as i32, 0);
    }
}

#[test]
fn surfaces_need_an_array_that_was_made_for_them() {
    let stream = context().new_stream().unwrap();
    let module = context().load_module(Ptx::from_src(KERNELS)).unwrap();
    let (paint, flat) = (module.load_function("paint").unwrap(), array([4, 2, 0], 0));
    let canvas = array([4, 2, 0], SURFACE);
    // SAFETY: every result has its place, and the kernel writes four texels of each row.
    unsafe {
        let mut surface = 0;
        assert_eq!(sys::cuSurfObjectCreate(&mut surface, &of_array(flat)) as i32, INVALID_VALUE);
        assert_eq!(sys::cuSurfObjectCreate(&mut surface, &of_array(canvas)) as i32, 0);
        let mut raw = ptr::null_mut();
        let text = CString::new(KERNELS).unwrap();
        assert_eq!(sys::cuModuleLoadData(&mut raw, text.as_ptr().cast()) as i32, 0);
        let (mut reference, mut painter, mut bound) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(sys::cuModuleGetSurfRef(&mut reference, raw, c"canvas".as_ptr()) as i32, 0);
        assert_eq!(sys::cuModuleGetSurfRef(&mut reference, raw, c"picture".as_ptr()) as i32, NOT_FOUND);
        assert_eq!(sys::cuSurfRefSetArray(reference, flat, 0) as i32, INVALID_VALUE);
        assert_eq!(sys::cuSurfRefSetArray(reference, canvas, 0) as i32, 0);
        assert_eq!(sys::cuSurfRefGetArray(&mut bound, reference) as i32, 0);
        assert_eq!(bound, canvas);
        assert_eq!(sys::cuModuleGetFunction(&mut painter, raw, c"paint".as_ptr()) as i32, 0);
        let mut arguments = [(&raw mut surface).cast::<c_void>()];
        result::launch_kernel(painter, (1, 1, 1), (4, 1, 1), 0, stream.cu_stream(), &mut arguments).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(read(canvas, [0; 3], [8, 2, 1]), [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 0, 2, 0, 3, 0]);
        assert_eq!(sys::cuSurfObjectDestroy(surface) as i32, 0);
        assert_eq!(sys::cuModuleUnload(raw) as i32, 0);
        assert_eq!(sys::cuSurfRefGetArray(&mut bound, reference) as i32, INVALID_VALUE);
    }
    drop(paint);
}

#[test]
fn a_reference_of_a_module_reads_what_it_is_bound_to() {
    let stream = context().new_stream().unwrap();
    let array = array([4, 1, 0], 0);
    fill(array, &bytes(), [8, 1, 1]);
    let text = CString::new(KERNELS).unwrap();
    // SAFETY: every result has its place, and the kernel writes a word for each thread.
    unsafe {
        let (mut raw, mut picture, mut same, mut kernel) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(sys::cuModuleLoadData(&mut raw, text.as_ptr().cast()) as i32, 0);
        assert_eq!(sys::cuModuleGetTexRef(&mut picture, raw, c"picture".as_ptr()) as i32, 0);
        assert_eq!(sys::cuModuleGetTexRef(&mut same, raw, c"picture".as_ptr()) as i32, 0);
        assert_eq!(picture, same);
        assert_eq!(sys::cuModuleGetTexRef(&mut same, raw, c"nothing".as_ptr()) as i32, NOT_FOUND);
        assert_eq!(sys::cuModuleGetFunction(&mut kernel, raw, c"fetch_picture".as_ptr()) as i32, 0);
        let mut out = result::malloc_sync(32).unwrap();
        let mut sampled = || {
            let mut arguments = [(&raw mut out).cast::<c_void>()];
            result::launch_kernel(kernel, (1, 1, 1), (8, 1, 1), 0, stream.cu_stream(), &mut arguments).unwrap();
            stream.synchronize().unwrap();
            let mut got = [0f32; 8];
            result::memcpy_dtoh_sync(&mut got, out).unwrap();
            got
        };
        assert_eq!(sys::cuTexRefSetArray(picture, array, 1) as i32, 0);
        // An older call, which declares for each kernel what it reads.
        assert_eq!(sys::cuParamSetTexRef(kernel, -1, picture) as i32, 0);
        assert_eq!(sys::cuParamSetTexRef(kernel, 0, picture) as i32, INVALID_VALUE);
        assert_near(&sampled(), &POINTS);
        assert_eq!(sys::cuTexRefSetFilterMode(picture, LINEAR) as i32, 0);
        assert_near(&sampled(), &FILTERED);
        assert_eq!(sys::cuTexRefSetAddressMode(picture, 0, Address::CU_TR_ADDRESS_MODE_BORDER) as i32, 0);
        assert_eq!(sys::cuTexRefSetBorderColor(picture, [1.0f32; 4].as_mut_ptr()) as i32, 0);
        assert_near(&sampled(), &[0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 1.0]);
        let (mut filter, mut mode, mut flags, mut bound) =
            (POINT, Address::CU_TR_ADDRESS_MODE_WRAP, 9, ptr::null_mut());
        assert_eq!(sys::cuTexRefGetFilterMode(&mut filter, picture) as i32, 0);
        assert_eq!(sys::cuTexRefGetAddressMode(&mut mode, picture, 0) as i32, 0);
        assert_eq!(sys::cuTexRefGetFlags(&mut flags, picture) as i32, 0);
        assert_eq!(sys::cuTexRefGetArray(&mut bound, picture) as i32, 0);
        assert_eq!((filter, mode, flags, bound), (LINEAR, Address::CU_TR_ADDRESS_MODE_BORDER, 0, array));
        // Memory has no format of its own.
        let memory = result::malloc_sync(1024).unwrap();
        result::memcpy_htod_sync(memory + 512 + 4, &bytes()).unwrap();
        let (mut offset, mut bound_address) = (0, 0);
        assert_eq!(sys::cuTexRefSetAddress_v2(&mut offset, picture, memory + 512 + 4, 8) as i32, 0);
        assert_eq!(offset, 4);
        assert_eq!(sys::cuTexRefSetFormat(picture, Format::CU_AD_FORMAT_UNSIGNED_INT8, 1) as i32, 0);
        // A refused binding changes nothing.
        assert_eq!(sys::cuTexRefSetAddress_v2(ptr::null_mut(), picture, memory + 4, 8) as i32, INVALID_VALUE);
        assert_eq!(sys::cuTexRefGetAddress_v2(&mut bound_address, picture) as i32, 0);
        assert_eq!(bound_address, memory + 512);
        assert_eq!(sys::cuTexRefSetFormat(picture, Format::CU_AD_FORMAT_UNSIGNED_INT8, 2) as i32, 0);
        let flat = sys::CUDA_ARRAY_DESCRIPTOR {
            Width: 4,
            Height: 1,
            Format: Format::CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 2,
        };
        result::memcpy_htod_sync(memory, &bytes()).unwrap();
        assert_eq!(sys::cuTexRefSetAddress2D_v3(picture, &flat, memory, 32) as i32, 0);
        assert_eq!(sys::cuTexRefSetAddressMode(picture, 0, Address::CU_TR_ADDRESS_MODE_CLAMP) as i32, 0);
        assert_near(&sampled(), &FILTERED);
        assert_eq!(sys::cuModuleUnload(raw) as i32, 0);
        assert_eq!(sys::cuTexRefGetFlags(&mut flags, picture) as i32, INVALID_VALUE);
        result::free_sync(memory).unwrap();
        result::free_sync(out).unwrap();
        assert_eq!(sys::cuArrayDestroy(array) as i32, 0);
    }
}

#[test]
fn a_destroyed_texture_is_an_illegal_address_with_a_report() {
    if !is_child() {
        return assert_passed(&in_child("textures::a_destroyed_texture_is_an_illegal_address_with_a_report", &[]));
    }
    let stream = context().new_stream().unwrap();
    let (fetch, array) = (function("fetch"), array([4, 1, 0], 0));
    let mut texture = create(&of_array(array), &sampling(POINT, 0)).unwrap();
    // SAFETY: the array is this test's own; the emulator stops the kernel. cudarc itself would look for faults at once.
    unsafe {
        assert_eq!(sys::cuArrayDestroy(array) as i32, 0);
        let mut out = result::malloc_sync(32).unwrap();
        let mut arguments = [(&raw mut out).cast::<c_void>(), (&raw mut texture).cast()];
        let kernel = fetch.cu_function();
        result::launch_kernel(kernel, (1, 1, 1), (8, 1, 1), 0, stream.cu_stream(), &mut arguments).unwrap();
    }
    assert_eq!(code(stream.synchronize()), ILLEGAL_ADDRESS);
    let report = fault_report();
    assert!(report.contains("tex.2d.v4.f32.f32") && report.contains("its memory was freed"), "{report}");
}

#[test]
fn a_kernel_that_can_not_run_is_refused_when_it_is_launched_and_told_why() {
    type Refusal = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    let stream = context().new_stream().unwrap();
    let asks = function("asks");
    // SAFETY: the kernel is not run.
    assert_eq!(code(unsafe { stream.launch_builder(&asks).arg(&0u64).launch(shape(1)) }), NOT_SUPPORTED);
    // SAFETY: the library documents this signature, and the buffer has the size that is passed.
    let text = unsafe {
        let refusal: Symbol<Refusal> = library().get(b"gpufleet_emulator_refusal").unwrap();
        let mut text = [0u8; 200];
        let length = refusal(text.as_mut_ptr().cast(), text.len());
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    assert_eq!(text, "kernel `asks` can't run: line 70: unsupported opcode `istypep.surfref`");
    stream.synchronize().unwrap();
}

#[test]
fn the_device_tells_how_large_textures_may_be() {
    let context = context();
    for (attribute, value) in [
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131_072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65_536),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16_384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2_048),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32_768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32_768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131_072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 1 << 28),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32_768),
        (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
        (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32),
    ] {
        assert_eq!(context.attribute(attribute), Ok(value), "{attribute:?}");
    }
}
