//! Tests of jobs that succeed.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, pin::pin, sync::Arc};

use futures::future::join_all;
use gpufleet_schema::{Arg, Block, Buffer, Data, Dtype, FailureCode, Grid, Launch, Number, Program, Task};
use gpufleet_worker::{
    compiler::{CompileRequest, Compiler},
    executor::{Executor, ExecutorJob, ExecutorOptions, RunError},
};
use tokio_util::sync::CancellationToken;

use crate::harness::{
    add_one, buffer, count, executable, f32s, fail, floats, job, launch, options, ptx_task, run, staged, start,
    succeed, u32_arg, u32s, zeros,
};

fn saxpy(program: Program<'static>, a: f32, x: &[f32], y: &[f32]) -> Task<'static> {
    let mut task = Task::new(program);
    task.buffers = vec![floats("x", x), floats("y", y)];
    task.arguments = BTreeMap::from([("a".to_owned(), Number::from(f64::from(a)))]);
    task.outputs = vec!["y".to_owned()];
    task
}

fn resolved(task: Task<'static>) -> Task<'static> {
    gpufleet_kernels::resolve(task).expect("the task fits its kernel")
}

#[tokio::test]
async fn a_catalog_kernel_gives_the_right_numbers_and_timings() {
    let executor = start().await;
    let task = resolved(saxpy(Program::Catalog("saxpy".to_owned()), 2.0, &[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]));
    let finished = run(&executor, &task).await;
    let outputs = finished.outcome.expect("saxpy succeeds");
    assert_eq!(outputs.len(), 1);
    let y = staged(&outputs[0]);
    assert_eq!((y.name.as_str(), &y.shape), ("y", &vec![3]));
    assert_eq!(f32s(&outputs[0]), [12.0, 24.0, 36.0]);
    assert_eq!(finished.timings.launches_us.len(), 1);
    assert!(finished.timings.total_us > 0);
    assert_eq!(finished.timings.device_bytes_peak, 24);
    assert!(!finished.timings.module_cached);
    assert!(run(&executor, &task).await.timings.module_cached, "the second time it is there");
}

#[tokio::test]
async fn the_same_kernel_runs_as_a_users_ptx_with_an_open_block() {
    let executor = start().await;
    let plain = resolved(saxpy(Program::Catalog("saxpy".to_owned()), 0.5, &[4.0; 1000], &[1.0; 1000]));
    let ptx = gpufleet_kernels::catalog().get("saxpy").unwrap().ptx();
    let mut task = Task { program: Program::Ptx(ptx.into()), arguments: BTreeMap::new(), ..plain };
    for block in [Block::Auto, Block::Threads(vec![96])] {
        task.launches[0].block = block;
        assert_eq!(f32s(&succeed(&executor, &task).await[0]), [3.0; 1000]);
    }
}

#[tokio::test]
async fn launches_run_in_order_and_share_intermediates_that_never_leave_the_device() {
    let executor = start().await;
    let mut task = add_one(100, 3);
    task.buffers.push(zeros("scratch", Dtype::U32, 100));
    task.launches.push(launch("add_one", 100, vec![buffer("scratch"), u32_arg(100)]));
    task.launches.push(Launch { repeat: 2, ..launch("add_one", 50, vec![buffer("data"), u32_arg(50)]) });
    let finished = run(&executor, &task).await;
    let outputs = finished.outcome.unwrap();
    assert_eq!(outputs.len(), 1);
    let values = u32s(&outputs[0]);
    assert_eq!((&values[..50], &values[50..]), (&[5; 50][..], &[3; 50][..]));
    assert_eq!(finished.timings.launches_us.len(), 3);
}

#[tokio::test]
async fn every_dtype_can_be_filled_with_one_value() {
    let executor = start().await;
    for dtype in Dtype::ALL {
        let number = if dtype == Dtype::Bool { Number::Bool(true) } else { Number::Signed(5) };
        let mut task = add_one(1, 1);
        let filled = Buffer::new("filled", dtype, vec![7, 3], Data::Fill(number));
        task.buffers.push(filled);
        task.outputs = vec!["filled".to_owned()];
        let mut element = Vec::new();
        number.write(dtype, &mut element).unwrap();
        let outputs = succeed(&executor, &task).await;
        assert_eq!(*staged(&outputs[0]).bytes, *element.repeat(21), "{dtype}");
    }
    let mut task = add_one(1, 1);
    let pi = Data::Fill(Number::Float(std::f64::consts::PI));
    task.buffers.push(Buffer::new("pi", Dtype::F64, vec![5], pi));
    task.outputs = vec!["pi".to_owned()];
    // In a long buffer, copies of the beginning fill the rest.
    for count in [5, 4096, 4097, 30_001] {
        task.buffers[1].shape = vec![count as u64];
        assert_eq!(
            *staged(&succeed(&executor, &task).await[0]).bytes,
            *std::f64::consts::PI.to_le_bytes().repeat(count)
        );
    }
}

#[tokio::test]
async fn a_job_has_more_launches_than_a_driver_has_room_for() {
    let executor = start().await;
    let mut task = add_one(4, 700);
    task.launches.push(task.launches[0].clone());
    task.launches.push(launch("add_one", 4, vec![buffer("data"), u32_arg(4)]));
    let finished = run(&executor, &task).await;
    assert_eq!(u32s(&finished.outcome.unwrap()[0]), [1401; 4]);
    assert_eq!(finished.timings.launches_us.len(), 3);
}

#[tokio::test]
async fn a_job_never_sees_what_another_left_behind() {
    let executor = start().await;
    for _ in 0..4 {
        assert_eq!(u32s(&succeed(&executor, &add_one(4096, 1)).await[0]), [1; 4096]);
    }
}

#[tokio::test]
async fn a_jobs_module_variables_are_its_own_and_new() {
    let mut options = options();
    // Some of the modules fit at the same time, but not all of them.
    options.environment.push(("GPUFLEET_EMULATOR_MEMORY".to_owned(), "64MiB".to_owned()));
    let (executor, _) = Executor::start(options).await.unwrap();
    let task = count(64);
    for _ in 0..20 {
        let finished = run(&executor, &task).await;
        assert_eq!(u32s(&finished.outcome.unwrap()[0]), [64]);
        assert!(!finished.timings.module_cached && finished.timings.load_us > 0);
    }
    for outputs in join_all((0..40).map(|_| succeed(&executor, &task))).await {
        assert_eq!(u32s(&outputs[0]), [64]);
    }
}

#[tokio::test]
async fn sixteen_mebibytes_go_in_and_come_back() {
    let executor = start().await;
    let bytes: Vec<u8> = (0..16_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut task = ptx_task(crate::harness::PTX);
    let data = Data::Inline(bytes.clone().into());
    task.buffers = vec![Buffer::new("big", Dtype::U8, vec![bytes.len() as u64], data), zeros("data", Dtype::U32, 1)];
    task.launches = vec![launch("add_one", 1, vec![buffer("data"), u32_arg(1)])];
    task.outputs = vec!["big".to_owned()];
    let outputs = succeed(&executor, &task).await;
    assert!(*staged(&outputs[0]).bytes == *bytes);
    assert_eq!(executor.unpinned(), None);
}

#[tokio::test]
async fn a_kernels_own_shared_memory_counts_towards_what_a_block_has_without_asking() {
    let executor = start().await;
    let own = ".shared .align 4 .b8 own[16384];\n\n.visible .entry add_one(";
    let text = crate::harness::PTX.replacen(".visible .entry add_one(", own, 1);
    let text = text.replacen(".reg .b64 %rd<5>;", ".reg .b64 %rd<5>;\n\tst.shared.u32 [own], 0;", 1);
    let mut task = Task { program: Program::Ptx(text.into()), ..add_one(10, 1) };
    // Each part alone is within the default maximum of a block, but not both together.
    for shared_bytes in [40 << 10, 33 << 10, 48 << 10] {
        task.launches[0].shared_bytes = shared_bytes;
        assert_eq!(u32s(&succeed(&executor, &task).await[0]), [1; 10]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_jobs_at_once_each_get_their_own_answer() {
    let executor = std::sync::Arc::new(start().await);
    let jobs: Vec<_> = (1..=300_u32)
        .map(|number| {
            let executor = std::sync::Arc::clone(&executor);
            tokio::spawn(async move {
                let outputs = succeed(&executor, &add_one(64, number % 7 + 1)).await;
                assert_eq!(u32s(&outputs[0]), vec![number % 7 + 1; 64]);
            })
        })
        .collect();
    for job in jobs {
        job.await.unwrap();
    }
}

#[tokio::test]
async fn a_two_dimensional_cover_reaches_every_element() {
    let executor = start().await;
    let task = Task::new(Program::Catalog("transpose".to_owned()));
    let mut task = Task { buffers: vec![floats("input", &(0..35).map(|i| i as f32).collect::<Vec<_>>())], ..task };
    task.buffers[0].shape = vec![5, 7];
    let kernel = gpufleet_kernels::catalog().get("transpose").expect("it is in the catalog");
    task.buffers[0].name = kernel.buffers.iter().find(|buffer| buffer.role.is_given()).unwrap().name.clone();
    let task = resolved(task);
    assert!(matches!(task.launches[0].grid, Grid::Cover(_) | Grid::Blocks(_)));
    let values = f32s(&succeed(&executor, &task).await[0]);
    let expected: Vec<f32> = (0..7).flat_map(|column| (0..5).map(move |row| (row * 7 + column) as f32)).collect();
    assert_eq!(values, expected);
}

/// Returns a task that halves three numbers.
fn half() -> Task<'static> {
    let code = "extern \"C\" __global__ void half_of(float *x, unsigned n) {\n\
                unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n) x[i] = x[i] / DIVISOR;\n}\n";
    let mut task = Task::new(Program::Source { code: code.into(), options: vec!["-DDIVISOR=2.0f".to_owned()] });
    task.buffers = vec![floats("x", &[2.0, 4.0, 8.0])];
    task.launches = vec![launch("half_of", 3, vec![buffer("x"), Arg::Scalar(Dtype::U32, 3_u32.into())])];
    task.outputs = vec!["x".to_owned()];
    task
}

#[tokio::test]
async fn cuda_c_is_compiled_run_and_compiled_only_once() {
    let executor = start().await;
    let task = half();
    let first = run(&executor, &task).await;
    assert_eq!(f32s(&first.outcome.unwrap()[0]), [1.0, 2.0, 4.0]);
    assert!(first.timings.compile_us > 0);
    let second = run(&executor, &task).await;
    assert!(second.timings.module_cached);
}

async fn start_with_compiler(program: &str) -> Executor {
    let compiler = Arc::new(Compiler::new(None).with_executable(program.into()));
    Executor::start(ExecutorOptions { compiler, ..options() }).await.expect("the emulator is built beside the worker").0
}

#[tokio::test]
async fn a_job_that_brings_what_it_was_compiled_to_needs_no_compiler() {
    let executor = start_with_compiler("/bin/false").await;
    let task = half();
    let Program::Source { code, options } = &task.program else { panic!("it is a source") };
    let target = executor.device().target();
    let request =
        CompileRequest { code: code.to_string(), options: options.clone(), expressions: vec![], target, nvrtc: None };
    let found = Compiler::new(None).with_executable(executable()).compile(request).await.unwrap();
    let finished = executor.run(ExecutorJob { compiled: Some(&found.compiled), ..job(&task) }).await.unwrap();
    assert_eq!(f32s(&finished.outcome.unwrap()[0]), [1.0, 2.0, 4.0]);
    assert_eq!(finished.timings.compile_us, 0);
    assert_eq!(fail(&executor, &task).await.code, FailureCode::CompileError, "by itself it can't be compiled here");
}

#[tokio::test]
async fn a_job_that_is_cancelled_while_it_is_compiled_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("compiler");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let executor = start_with_compiler(program.to_str().unwrap()).await;
    let (task, cancel) = (half(), CancellationToken::new());
    let mut running = pin!(executor.run(ExecutorJob { cancel: &cancel, ..job(&task) }));
    assert!(futures::poll!(running.as_mut()).is_pending());
    cancel.cancel();
    assert!(matches!(running.await, Err(RunError::Cancelled)));
}
