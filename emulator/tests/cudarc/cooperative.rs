//! Cooperative launches: all blocks of a grid are resident, and wait for each other.

use std::{ffi::c_void, sync::Arc};

use cudarc::{
    driver::{CudaContext, CudaFunction, LaunchConfig, PushKernelArg, result, sys},
    nvrtc::Ptx,
};

use crate::{
    faults::fault_report,
    platform::{assert_passed, code, context, in_child, is_child},
};

/// Kernels with grid barriers, from `grid.cu`.
const GRID: &str = include_str!("../../cases/grid.ptx");
const NOT_SUPPORTED: i32 = 801;
const TOO_LARGE: i32 = 720;
const LAUNCH_TIMEOUT: i32 = 702;
const INVALID_CLUSTER_SIZE: i32 = 912;

fn kernel(context: &Arc<CudaContext>, name: &str) -> CudaFunction {
    context.load_module(Ptx::from_src(GRID)).unwrap().load_function(name).unwrap()
}

/// Returns the number of blocks that fit on the whole device.
fn resident(context: &CudaContext, kernel: &CudaFunction, threads: u32) -> u32 {
    let on_one = kernel.occupancy_max_active_blocks_per_multiprocessor(threads, 0, None).unwrap();
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    on_one * context.attribute(attribute).unwrap() as u32
}

fn shape(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

/// Runs `rounds` and compares the result with the CPU's.
fn run_rounds(blocks_of: impl Fn(&CudaContext, &CudaFunction) -> u32, threads: u32, count: u32) {
    let context = context();
    let rounds = kernel(&context, "rounds");
    let stream = context.new_stream().unwrap();
    let blocks = blocks_of(&context, &rounds);
    let mut expected = (0..blocks * threads).map(|index| index * 7 % 1000).collect::<Vec<_>>();
    let mut values = stream.clone_htod(&expected).unwrap();
    // SAFETY: the arguments are those of the kernel, and each thread has its element.
    unsafe { stream.launch_builder(&rounds).arg(&mut values).arg(&count).launch_cooperative(shape(blocks, threads)) }
        .unwrap();
    let length = expected.len();
    for _ in 0..count {
        expected = (0..length).map(|index| expected[(index + 1) % length] + 1).collect();
    }
    assert_eq!(stream.clone_dtoh(&values).unwrap(), expected);
}

#[test]
fn the_blocks_of_a_grid_wait_for_each_other() {
    for (blocks, threads) in [(1, 32), (2, 1), (7, 33), (8, 256)] {
        run_rounds(|_, _| blocks, threads, 5);
    }
}

#[test]
fn as_many_blocks_as_fit_get_on_with_one_thread_of_the_host() {
    const TEST: &str = "cooperative::as_many_blocks_as_fit_get_on_with_one_thread_of_the_host";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_THREADS", "1")]));
    }
    run_rounds(|context, kernel| resident(context, kernel, 64), 64, 3);
}

#[test]
fn as_many_blocks_as_fit_get_on_with_more_threads_than_cores() {
    const TEST: &str = "cooperative::as_many_blocks_as_fit_get_on_with_more_threads_than_cores";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_THREADS", "5")]));
    }
    run_rounds(|context, kernel| resident(context, kernel, 256), 256, 3);
}

#[test]
fn blocks_that_sleep_let_the_others_on() {
    let context = context();
    let relay = kernel(&context, "relay");
    let stream = context.new_stream().unwrap();
    let blocks = resident(&context, &relay, 32);
    let mut token = stream.clone_htod(&[0u32]).unwrap();
    // SAFETY: the argument is the kernel's.
    unsafe { stream.launch_builder(&relay).arg(&mut token).launch_cooperative(shape(blocks, 32)) }.unwrap();
    assert_eq!(stream.clone_dtoh(&token).unwrap(), [blocks]);
}

#[test]
fn only_a_cooperative_launch_has_a_workspace() {
    let context = context();
    let workspace = kernel(&context, "workspace");
    let stream = context.new_stream().unwrap();
    let mut words = stream.clone_htod(&[9u32; 3]).unwrap();
    // SAFETY: the kernel writes three words.
    unsafe { stream.launch_builder(&workspace).arg(&mut words).launch(shape(1, 1)) }.unwrap();
    assert_eq!(stream.clone_dtoh(&words).unwrap(), [0, 0, 0]);
    // SAFETY: as above.
    unsafe { stream.launch_builder(&workspace).arg(&mut words).launch_cooperative(shape(1, 1)) }.unwrap();
    assert_eq!(stream.clone_dtoh(&words).unwrap(), [8, 0, 0]);
}

#[test]
fn a_grid_that_does_not_fit_at_once_is_refused() {
    let context = context();
    let rounds = kernel(&context, "rounds");
    let stream = context.new_stream().unwrap();
    let blocks = resident(&context, &rounds, 1024);
    let mut values = stream.alloc_zeros::<u32>(((blocks + 1) * 1024) as usize).unwrap();
    let mut launch = |blocks| {
        // SAFETY: the arguments are those of the kernel, and each thread has its element.
        unsafe { stream.launch_builder(&rounds).arg(&mut values).arg(&0u32).launch_cooperative(shape(blocks, 1024)) }
    };
    assert_eq!(code(launch(blocks + 1)), TOO_LARGE);
    assert_eq!(code(launch(blocks)), 0);
    stream.synchronize().unwrap();
}

#[test]
fn a_launch_attribute_makes_a_launch_cooperative() {
    let context = context();
    let workspace = kernel(&context, "workspace");
    let stream = context.new_stream().unwrap();
    let words = stream.alloc_zeros::<u32>(3).unwrap();
    let mut address = cudarc::driver::DevicePtr::device_ptr(&words, &stream).0;
    let mut launch = |id, value| {
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.cu_stream(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        // SAFETY: the argument is the kernel's; the attribute outlives the call.
        let status = unsafe {
            sys::cuLaunchKernelEx(&config, workspace.cu_function(), arguments.as_mut_ptr(), std::ptr::null_mut())
        };
        (status as i32, stream.clone_dtoh(&words).unwrap()[0])
    };
    use sys::{CUlaunchAttributeID as Id, CUlaunchAttributeValue as Value};
    let cluster = |x| Value { clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y: 1, z: 1 } };
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, Value { cooperative: 0 }), (0, 0));
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, Value { cooperative: 1 }), (0, 8));
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_PRIORITY, Value { priority: -1 }), (0, 0));
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster(1)), (0, 0));
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster(2)).0, INVALID_CLUSTER_SIZE);
    assert_eq!(launch(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, Value { cooperative: 0 }).0, NOT_SUPPORTED);
}

#[test]
fn a_barrier_that_a_block_never_comes_to_ends_with_the_budget() {
    const TEST: &str = "cooperative::a_barrier_that_a_block_never_comes_to_ends_with_the_budget";
    if !is_child() {
        return assert_passed(&in_child(TEST, &[("GPUFLEET_EMULATOR_INSTRUCTIONS_MAX", "1000000")]));
    }
    let context = context();
    let absent = kernel(&context, "absent");
    let stream = context.new_stream().unwrap();
    let mut values = stream.alloc_zeros::<u32>(1).unwrap();
    // SAFETY: the argument is the kernel's.
    unsafe { stream.launch_builder(&absent).arg(&mut values).launch_cooperative(shape(4, 64)) }.unwrap();
    assert_eq!(code(stream.synchronize()), LAUNCH_TIMEOUT);
    let report = fault_report();
    assert!(report.contains("exceeded its instruction limit in kernel `absent`"), "{report}");
    let line = report.split_once("PTX line ").unwrap().1.split_once(',').unwrap().0.parse::<usize>().unwrap();
    // The loop that spins on the word of the barrier.
    assert!(GRID.lines().nth(line - 1).unwrap().contains("ld.acquire.gpu.u32"), "{report}");
}

#[test]
fn a_device_says_that_blocks_can_wait_for_each_other_but_not_devices() {
    let context = context();
    use sys::CUdevice_attribute as Attribute;
    assert_eq!(context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), Ok(1));
    assert_eq!(context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH), Ok(0));
    // SAFETY: the list is empty.
    let status = unsafe { sys::cuLaunchCooperativeKernelMultiDevice(std::ptr::null_mut(), 0, 0) };
    assert_eq!(status as i32, NOT_SUPPORTED);
    assert_eq!(code(result::init()), 0);
}
