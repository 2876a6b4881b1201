//! Tests of launches: instances of templates, structures by value, parts of buffers, cooperative grids and clusters.

use gpufleet_schema::{Arg, Dtype, FailureCode, Grid, Launch, Program, Task, Verdict};

use crate::harness::{buffer, f32s, fail, start, succeed, u32_arg, u32s, zeros};

fn source(code: &str) -> Task<'static> {
    Task::new(Program::Source { code: code.to_owned().into(), options: vec![] })
}

/// Returns a launch of eight threads.
fn eight(entry: &str, args: Vec<Arg>) -> Launch {
    Launch { block: gpufleet_schema::Block::Threads(vec![8]), args, ..Launch::new(entry, Grid::Blocks(vec![1])) }
}

const TEMPLATES: &str = "namespace ns {\n\
    template <typename T, int N> __global__ void ramp(T *out) { out[threadIdx.x] = T(threadIdx.x) * N / T(2); }\n}\n\
    __global__ void plain(int *out) { out[threadIdx.x] += 1; }\n";

fn templates() -> Task<'static> {
    let mut task = source(TEMPLATES);
    task.buffers = vec![zeros("floats", Dtype::F32, 8), zeros("integers", Dtype::U32, 8)];
    task.launches = vec![
        eight("ns::ramp<float, 3>", vec![buffer("floats")]),
        eight("ns::ramp<unsigned, 3>", vec![buffer("integers")]),
        eight("::plain", vec![buffer("integers")]),
    ];
    task.outputs = vec!["floats".to_owned(), "integers".to_owned()];
    task
}

#[tokio::test]
async fn instances_of_a_template_are_entries_of_one_task() {
    let executor = start().await;
    let outputs = succeed(&executor, &templates()).await;
    assert_eq!(f32s(&outputs[0]), [0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0, 10.5]);
    assert_eq!(u32s(&outputs[1]), [1, 2, 4, 5, 7, 8, 10, 11]);
}

#[tokio::test]
async fn a_wrong_name_expression_is_told_in_nvrtcs_words() {
    let executor = start().await;
    let mut task = templates();
    task.launches[1].entry = "ns::ramp<Float, 3>".to_owned();
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::CompileError));
    assert_eq!(failure.message, "entry ns::ramp<Float, 3>: error: identifier \"Float\" is undefined");
    assert!(failure.detail.unwrap().contains("ns::ramp<Float, 3>"));

    task.launches[1].entry = "plain".to_owned();
    let failure = fail(&executor, &task).await;
    assert_eq!(failure.code, FailureCode::LaunchError);
    assert!(failure.message.contains("in CUDA C++ launch the entry ::NAME"), "{}", failure.message);
}

#[tokio::test]
async fn a_launch_is_refused_by_the_name_that_its_task_gave_it() {
    let executor = start().await;
    let mut task = templates();
    task.launches[0].args.clear();
    let failure = fail(&executor, &task).await;
    let wanted = "launches[0] (ns::ramp<float, 3>): 0 arguments given, but the kernel takes 1";
    assert_eq!((failure.code, failure.message.as_str()), (FailureCode::LaunchError, wanted));
}

/// A kernel that takes a structure after a parameter of four bytes. The structure has padding in the middle and at its
/// end.
const STRUCTURE: &str = "struct Line { float slope; double start; char scale; };\n\
    extern \"C\" __global__ void line(unsigned n, Line line, float *out) {\n\
    if (threadIdx.x < n) out[threadIdx.x] = (line.slope * threadIdx.x + float(line.start)) * line.scale;\n}\n";

fn line(bytes: Vec<u8>, align: u32) -> Task<'static> {
    let mut task = source(STRUCTURE);
    task.buffers = vec![zeros("out", Dtype::F32, 8)];
    task.launches = vec![eight("line", vec![u32_arg(8), Arg::Bytes { bytes, align }, buffer("out")])];
    task.outputs = vec!["out".to_owned()];
    task
}

fn line_bytes() -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[..4].copy_from_slice(&0.5_f32.to_le_bytes());
    bytes[8..16].copy_from_slice(&10.0_f64.to_le_bytes());
    bytes[16] = 2;
    bytes
}

#[tokio::test]
async fn a_structure_is_passed_by_value() {
    let executor = start().await;
    let outputs = succeed(&executor, &line(line_bytes(), 8)).await;
    assert_eq!(f32s(&outputs[0]), [20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0]);
}

#[tokio::test]
async fn a_structure_of_another_size_or_alignment_is_refused_before_anything_runs() {
    let executor = start().await;
    let failure = fail(&executor, &line(line_bytes()[..16].to_vec(), 8)).await;
    assert_eq!(failure.code, FailureCode::LaunchError);
    assert_eq!(failure.message, "launches[0] (line): args[1] has 16 bytes, but the kernel's parameter has 24");
    let mut task = line([line_bytes(), vec![0; 8]].concat(), 16);
    let Program::Source { code, .. } = &mut task.program else { panic!("it is a source") };
    *code = code.replace("char scale;", "char scale; double more;").into();
    let failure = fail(&executor, &task).await;
    assert!(
        failure.message.contains("args[1] is aligned to 16 bytes, but the kernel's parameter starts at byte 8"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn an_argument_may_point_into_a_buffer() {
    let executor = start().await;
    let mut task = source("extern \"C\" __global__ void mark(unsigned *x, unsigned mark) { x[threadIdx.x] = mark; }\n");
    task.buffers = vec![zeros("x", Dtype::U32, 20)];
    let at = |offset| Arg::BufferAt { name: "x".to_owned(), offset };
    task.launches = vec![eight("mark", vec![at(12), u32_arg(2)]), eight("mark", vec![at(3), u32_arg(1)])];
    task.outputs = vec!["x".to_owned()];
    let wanted = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 2, 2, 2, 2, 2, 2, 2];
    assert_eq!(u32s(&succeed(&executor, &task).await[0]), wanted);
}

/// A kernel in which each block reads what another block wrote before the barrier of the grid.
const GRID: &str = "#include <cooperative_groups.h>\n\
    extern \"C\" __global__ void turn(unsigned *x, unsigned *y) {\n\
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;\n\
    x[i] = i + 1;\n\
    cooperative_groups::this_grid().sync();\n\
    y[i] = x[n - 1 - i];\n}\n";

fn turn(blocks: u32, cooperative: bool) -> Task<'static> {
    let mut task = source(GRID);
    let count = u64::from(blocks) * 8;
    task.buffers = vec![zeros("x", Dtype::U32, count), zeros("y", Dtype::U32, count)];
    let launch = eight("turn", vec![buffer("x"), buffer("y")]);
    task.launches = vec![Launch { grid: Grid::Blocks(vec![blocks]), cooperative, ..launch }];
    task.outputs = vec!["y".to_owned()];
    task
}

#[tokio::test]
async fn the_blocks_of_a_cooperative_launch_wait_for_each_other() {
    let executor = start().await;
    let turned = u32s(&succeed(&executor, &turn(4, true)).await[0]);
    assert_eq!(turned, (1..=32).rev().collect::<Vec<u32>>());
}

#[tokio::test]
async fn a_cooperative_grid_that_does_not_fit_is_refused_in_numbers() {
    let executor = start().await;
    let failure = fail(&executor, &turn(100_000, true)).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LaunchError));
    let told = failure.message;
    assert!(
        told.starts_with("launches[0] (turn): a cooperative grid of 100000 x 1 x 1 blocks of 8 threads is too large: this device runs at most "),
        "{told}"
    );
    assert!(told.ends_with("launch fewer blocks, each with more work"), "{told}");
}

#[tokio::test]
async fn the_emulated_device_refuses_clusters_and_runs_those_of_one_block() {
    let executor = start().await;
    let mut task = turn(4, true);
    task.launches[0].cluster = vec![1, 1];
    succeed(&executor, &task).await;
    task.launches[0].cluster = vec![2];
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LaunchError));
    assert!(
        failure.message.contains("the emulated device does not support clusters of several blocks"),
        "{}",
        failure.message
    );
}
