//! Launches: results, forms of arguments, limits and occupancy.

use std::ffi::{c_char, c_void};

use cudarc::{
    driver::{CudaContext, CudaFunction, result, sys},
    nvrtc::Ptx,
};

use crate::{
    platform::{assert_passed, code, context, in_child, is_child, library},
    programs::{PRINT, SAXPY, STORE},
};

const INVALID_VALUE: i32 = 1;
const NOT_READY: i32 = 600;

fn function(context: &std::sync::Arc<CudaContext>, source: &str, name: &str) -> CudaFunction {
    context.load_module(Ptx::from_src(source)).unwrap().load_function(name).unwrap()
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

#[test]
fn saxpy_gives_what_the_cpu_gives() {
    let context = context();
    let saxpy = function(&context, SAXPY, "saxpy");
    let stream = context.new_stream().unwrap();
    let (mut a, mut length) = (2.5f32, 100_003u32);
    let x = (0..length).map(|index| index as f32).collect::<Vec<_>>();
    let y = x.iter().map(|x| 1.0 - x).collect::<Vec<_>>();
    // SAFETY: the addresses are this test's own, and the arguments are those of the kernel.
    let result = unsafe {
        let bytes = x.len() * 4;
        let stream = stream.cu_stream();
        let (mut on_x, mut on_y) = (result::malloc_sync(bytes).unwrap(), result::malloc_sync(bytes).unwrap());
        result::memcpy_htod_async(on_x, &x, stream).unwrap();
        result::memcpy_htod_async(on_y, &y, stream).unwrap();
        let mut arguments = [pointer(&mut a), pointer(&mut on_x), pointer(&mut on_y), pointer(&mut length)];
        let blocks = length.div_ceil(256);
        result::launch_kernel(saxpy.cu_function(), (blocks, 1, 1), (256, 1, 1), 0, stream, &mut arguments).unwrap();
        let mut result = vec![0f32; x.len()];
        result::memcpy_dtoh_async(&mut result, on_y, stream).unwrap();
        result::free_sync(on_x).unwrap();
        result::free_sync(on_y).unwrap();
        result
    };
    let expected = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y)).collect::<Vec<_>>();
    assert_eq!(result, expected);
}

/// Returns a kernel that adds up `names` registers, each of which is read once.
fn many_registers(names: u32) -> String {
    let add = |name| format!("add.u32 %n{name}, %n{}, {};\n", name - 1, name % 64);
    let adds: String = (1..names).map(add).collect();
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry many(.param .u64 out)\n{{\n\
         .reg .b32 %n<{names}>;\n.reg .b64 %d<3>;\nld.param.u64 %d0, [out];\nmov.u32 %n0, %tid.x;\n\
         mul.wide.u32 %d1, %n0, 4;\nadd.s64 %d2, %d0, %d1;\n{adds}st.global.u32 [%d2], %n{};\nret;\n}}\n",
        names - 1
    )
}

#[test]
fn a_kernel_names_more_registers_than_a_frame_has_room_for() {
    const NAMES: u32 = 60_000;
    let context = context();
    let many = function(&context, &many_registers(NAMES), "many");
    let stream = context.new_stream().unwrap();
    let mut result = vec![0u32; 40];
    // SAFETY: the address is this test's own, with a word for each thread of the block.
    unsafe {
        let mut out = result::malloc_sync(4 * result.len()).unwrap();
        let (stream, mut arguments) = (stream.cu_stream(), [pointer(&mut out)]);
        result::launch_kernel(many.cu_function(), (1, 1, 1), (40, 1, 1), 0, stream, &mut arguments).unwrap();
        result::memcpy_dtoh_async(&mut result, out, stream).unwrap();
        result::free_sync(out).unwrap();
    }
    let sum: u32 = (1..NAMES).map(|name| name % 64).sum();
    assert_eq!(result, (0..40).map(|thread| sum + thread).collect::<Vec<_>>());
}

#[test]
fn arguments_may_come_in_one_buffer() {
    let context = context();
    let store = function(&context, STORE, "store");
    let stream = context.new_stream().unwrap();
    // SAFETY: the buffer holds the kernel's one pointer, and the memory has room for the block's threads.
    let result = unsafe {
        let mut address = result::malloc_sync(64 * 4).unwrap();
        let mut bytes = size_of_val(&address);
        let mut extra = [
            std::ptr::without_provenance_mut(1),
            pointer(&mut address),
            std::ptr::without_provenance_mut(2),
            pointer(&mut bytes),
            std::ptr::null_mut(),
        ];
        let (function, stream) = (store.cu_function(), stream.cu_stream());
        let status =
            sys::cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, std::ptr::null_mut(), extra.as_mut_ptr());
        assert_eq!(status as i32, 0);
        let mut result = [0u32; 64];
        result::memcpy_dtoh_async(&mut result, address, stream).unwrap();
        result::free_sync(address).unwrap();
        result
    };
    assert!(result.iter().zip(0..).all(|(value, thread)| *value == thread));
}

#[test]
fn an_absurd_shape_is_refused_and_the_context_lives() {
    let context = context();
    let store = function(&context, STORE, "store");
    let stream = context.new_stream().unwrap();
    let mut address = 0u64;
    let mut launch = |grid, block, shared| {
        let mut arguments = [pointer(&mut address)];
        // SAFETY: the argument is the kernel's; none of these launches starts.
        let launched = unsafe {
            result::launch_kernel(store.cu_function(), grid, block, shared, stream.cu_stream(), &mut arguments)
        };
        code(launched)
    };
    assert_eq!(launch((0, 1, 1), (1, 1, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 1, 1), (1, 0, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 1, 1), (1025, 1, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 1, 1), (1024, 2, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 1, 1), (1, 1, 65), 0), INVALID_VALUE);
    assert_eq!(launch((u32::MAX, 1, 1), (1, 1, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 65_536, 1), (1, 1, 1), 0), INVALID_VALUE);
    assert_eq!(launch((1, 1, 1), (1, 1, 1), (48 << 10) + 1), INVALID_VALUE);
    stream.synchronize().unwrap();
}

#[test]
fn more_dynamic_shared_memory_has_to_be_asked_for() {
    let context = context();
    let store = function(&context, STORE, "store");
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(store.get_attribute(attribute), Ok(48 << 10));
    store.set_attribute(attribute, 100 << 10).unwrap();
    assert_eq!(store.get_attribute(attribute), Ok(100 << 10));
    assert_eq!(code(store.set_attribute(attribute, 1 << 20)), INVALID_VALUE);
}

#[test]
fn occupancy_proposes_a_block_that_can_be_launched() {
    extern "C" fn none(_block: i32) -> usize {
        0
    }
    let context = context();
    let saxpy = function(&context, SAXPY, "saxpy");
    let (grid, block) = saxpy.occupancy_max_potential_block_size(none, 0, 0, None).unwrap();
    assert!(grid >= 1 && (32..=1024).contains(&block), "{grid} {block}");
    let blocks = saxpy.occupancy_max_active_blocks_per_multiprocessor(block, 0, None).unwrap();
    assert!(blocks >= 1);
    assert_eq!(saxpy.occupancy_max_active_blocks_per_multiprocessor(64, 10 << 20, None), Ok(0));
}

#[test]
fn what_a_kernel_prints_can_be_taken() {
    type Take = unsafe extern "C" fn(*mut c_char, usize) -> usize;
    let context = context();
    // SAFETY: the library documents this signature.
    let take = unsafe { library().get::<Take>(b"gpufleet_emulator_printf") }.unwrap();
    // SAFETY: without a buffer nothing is written.
    assert_eq!(unsafe { take(std::ptr::null_mut(), 0) }, 0);
    let print = function(&context, PRINT, "print");
    let stream = context.new_stream().unwrap();
    // SAFETY: the kernel has no parameters.
    unsafe { result::launch_kernel(print.cu_function(), (1, 1, 1), (3, 1, 1), 0, stream.cu_stream(), &mut []) }
        .unwrap();
    stream.synchronize().unwrap();
    let mut text = [0u8; 256];
    // SAFETY: the buffer has the size that is passed.
    let length = unsafe { take(text.as_mut_ptr().cast(), text.len()) };
    assert_eq!(std::str::from_utf8(&text[..length]).unwrap(), "thread 0\nthread 1\nthread 2\n");
    // SAFETY: as above.
    assert_eq!(unsafe { take(text.as_mut_ptr().cast(), text.len()) }, 0);
}

#[test]
fn what_a_kernel_prints_is_written_by_the_calls_that_wait() {
    const TEST: &str = "launches::what_a_kernel_prints_is_written_by_the_calls_that_wait";
    if !is_child() {
        let output = in_child(TEST, &[]);
        assert_passed(&output);
        let text = String::from_utf8(output.stdout).unwrap();
        let places = [
            "launched\n",
            "thread 0\nthread 1\nthread 2\n",
            "stream\n",
            "thread 0\n",
            "event\n",
            "thread 0\n",
            "copied\n",
            "thread 0\n",
            "loaded\n",
            "thread 0\n",
            "launched again\n",
            "thread 0\n",
            "reset\n",
        ];
        let end = places.iter().fold(0, |from, part| {
            let found = text[from..].find(part).unwrap_or_else(|| panic!("`{part}` behind byte {from} of:\n{text}"));
            from + found + part.len()
        });
        assert!(!text[end..].contains("thread"), "{text}");
        return;
    }
    let context = context();
    let print = function(&context, PRINT, "print");
    let stream = context.new_stream().unwrap();
    let launch = |threads| {
        let (grid, block) = ((1, 1, 1), (threads, 1, 1));
        // SAFETY: the kernel has no parameters.
        unsafe { result::launch_kernel(print.cu_function(), grid, block, 0, stream.cu_stream(), &mut []) }.unwrap();
    };
    launch(3);
    println!("launched");
    stream.synchronize().unwrap();
    println!("stream");
    launch(1);
    stream.record_event(None).unwrap().synchronize().unwrap();
    println!("event");
    // Copies in the default stream wait for its kernels.
    let launch = || {
        let stream = std::ptr::null_mut();
        // SAFETY: the kernel has no parameters.
        unsafe { result::launch_kernel(print.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream, &mut []) }.unwrap();
    };
    // A query does not write the output of kernels.
    // SAFETY: the default stream is always there.
    let ends = || while unsafe { sys::cuStreamQuery(std::ptr::null_mut()) } as i32 == NOT_READY {};
    // SAFETY: the memory is this test's own.
    let memory = unsafe { result::malloc_sync(4) }.unwrap();
    launch();
    // SAFETY: as above.
    unsafe { result::memcpy_dtoh_sync(&mut [0u32], memory) }.unwrap();
    println!("copied");
    launch();
    ends();
    function(&context, STORE, "store");
    println!("loaded");
    launch();
    ends();
    launch();
    println!("launched again");
    ends();
    // SAFETY: nothing of the context is used any more.
    assert_eq!(unsafe { sys::cuDevicePrimaryCtxReset_v2(0) } as i32, 0);
    println!("reset");
}

#[test]
fn a_buffer_of_the_wrong_size_is_refused() {
    let context = context();
    let store = function(&context, STORE, "store");
    for (mut bytes, expected) in [(7usize, INVALID_VALUE), (33, INVALID_VALUE)] {
        let mut buffer = [0u8; 64];
        let mut extra = [
            std::ptr::without_provenance_mut(1),
            pointer(&mut buffer),
            std::ptr::without_provenance_mut(2),
            pointer(&mut bytes),
            std::ptr::null_mut(),
        ];
        let (none, list) = (std::ptr::null_mut(), extra.as_mut_ptr());
        // SAFETY: the buffer has the size that is passed; neither launch starts.
        let status = unsafe { sys::cuLaunchKernel(store.cu_function(), 1, 1, 1, 1, 1, 1, 0, none, none.cast(), list) };
        assert_eq!(status as i32, expected, "{bytes}");
    }
}

#[test]
fn a_launch_with_more_shared_memory_than_asked_for_is_refused() {
    let context = context();
    let store = function(&context, STORE, "store");
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let stream = context.new_stream().unwrap();
    let mut memory = stream.alloc_zeros::<u32>(1).unwrap();
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    let mut launch = |shared_mem_bytes| {
        let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes };
        // SAFETY: the argument is the kernel's.
        code(unsafe { stream.launch_builder(&store).arg(&mut memory).launch(shape) })
    };
    assert_eq!(launch(60 << 10), INVALID_VALUE);
    store.set_attribute(attribute, 60 << 10).unwrap();
    assert_eq!(launch(60 << 10), 0);
    assert_eq!(launch((60 << 10) + 1), INVALID_VALUE);
    stream.synchronize().unwrap();
}
