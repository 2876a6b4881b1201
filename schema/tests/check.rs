//! Checks of tasks: what they refuse, and which field they name.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use gpufleet_schema::{
    Arg, BlobDigest, Block, Buffer, Data, Dtype, Grid, Inline, Launch, Number, Program, Task, bounds::KEEP_MS_MAX,
};

fn good() -> Task<'static> {
    Task {
        buffers: vec![Buffer::new("x", Dtype::F32, vec![4], Data::Zeros)],
        launches: vec![Launch { args: vec![Arg::Buffer("x".into())], ..Launch::new("k", Grid::Cover(vec![4])) }],
        outputs: vec!["x".into()],
        ..Task::new(Program::Ptx(".version 8.0".into()))
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Task<'static>), field: &str, problem: &str) {
    let mut task = good();
    change(&mut task);
    let invalid = task.check().unwrap_err();
    assert_eq!(invalid.field, field, "{invalid}");
    assert!(invalid.problem.contains(problem), "{invalid}");
}

#[test]
fn a_valid_task_passes() {
    good().check().unwrap();
}

#[test]
fn a_program_may_be_compiled_without_running_it() {
    Task { buffers: Vec::new(), launches: Vec::new(), outputs: Vec::new(), ..good() }.check().unwrap();
}

#[test]
fn the_output_of_another_job_must_be_resolved_by_the_producer() {
    let written = r#"{
        "name": "x", "dtype": "f32", "shape": [4],
        "data": {"output": {"job": "01990f3e-0000-7000-8000-000000000001", "name": "y"}}
    }"#;
    let buffer: Buffer<'_> = serde_json::from_str(written).unwrap();
    let job = "01990f3e-0000-7000-8000-000000000001".parse().unwrap();
    assert_eq!(buffer, Buffer::output_of("x", Dtype::F32, [4], job, "y"));
    refused(
        |task| task.buffers[0] = Buffer::output_of("x", Dtype::F32, [4], job, "y"),
        "buffers.x.data.output",
        "must be looked up in the ledger before the task is published",
    );
}

#[test]
fn outputs_are_kept_for_a_millisecond_to_a_year() {
    refused(|task| task.keep_ms = Some(0), "keep_ms", "leave it out to keep no outputs");
    refused(|task| task.keep_ms = Some(KEEP_MS_MAX + 1), "keep_ms", "the maximum is 31622400000 (366 days)");
    for keep_ms in [None, Some(1), Some(KEEP_MS_MAX)] {
        Task { keep_ms, ..good() }.check().unwrap();
    }
}

#[test]
fn shapes_and_bytes_must_agree() {
    let inline = |bytes: usize| Data::Inline(Inline::from(vec![0; bytes]));
    refused(|task| task.buffers[0].data = inline(15), "buffers.x.data", "holds 15 bytes, but [4] of f32 needs 16");
    refused(|task| task.buffers[0].shape = vec![0, 3], "buffers.x.shape", "no elements");
    refused(|task| task.buffers[0].shape = vec![u64::MAX, 2], "buffers.x.shape", "exceeds");
    refused(|task| task.buffers[0].shape = vec![1 << 39], "buffers.x.shape", "exceeds");
    refused(|task| task.buffers[0].shape = vec![1; 9], "buffers.x.shape", "too many dimensions; the maximum is 8");
    refused(
        |task| task.buffers[0].data = Data::Inline(Inline::from(vec![Number::Signed(1); 3])),
        "buffers.x.data",
        "holds 12 bytes",
    );
    refused(
        |task| {
            task.buffers[0].dtype = Dtype::U8;
            task.buffers[0].data = Data::Inline(Inline::from(vec![Number::Signed(256); 4]));
        },
        "buffers.x.data",
        "256 does not fit u8",
    );
    refused(
        |task| {
            task.buffers[0].dtype = Dtype::Bool;
            task.buffers[0].data = Data::Fill(Number::Signed(2));
        },
        "buffers.x.data.fill",
        "2 does not fit bool",
    );
}

/// A buffer whose contents are a blob of this many bytes.
fn blob(name: &str, bytes: u64) -> Buffer<'static> {
    let data = Data::Blob(BlobDigest::of(name.as_bytes()));
    Buffer::new(name, Dtype::F32, vec![bytes / 4], data)
}

#[test]
fn a_blob_is_valid_if_its_shape_is() {
    let mut task = good();
    task.buffers = vec![blob("x", 16)];
    task.check().unwrap();
    assert_eq!((task.blob_bytes(), task.inline_bytes()), (16, 0));
    refused(|task| task.buffers[0] = blob("x", 0), "buffers.x.shape", "no elements");
    refused(|task| task.buffers[0] = blob("x", 1 << 41), "buffers.x.shape", "exceeds");
}

#[test]
fn only_an_input_can_be_shared() {
    let share = |buffer: Buffer<'static>| Buffer { share: true, ..buffer };
    refused(|task| task.buffers[0] = share(blob("x", 16)), "buffers.x.share", "an output can't be shared");
    refused(|task| task.buffers[0].share = true, "buffers.x.share", "only an input can be shared");
    let mut task = good();
    task.buffers.push(share(blob("shared", 16)));
    task.check().unwrap();
}

#[test]
fn inputs_from_the_blob_store_are_bounded_like_all_buffers() {
    let mut large = good();
    large.buffers.extend([blob("a", 1 << 36), blob("b", 1 << 36)]);
    large.check().unwrap();
    assert_eq!(large.blob_bytes(), 1 << 37);
    refused(|task| task.buffers.extend([blob("a", 1 << 39), blob("b", 1 << 39)]), "buffers", "exceed");
}

#[test]
fn grids_and_blocks_must_be_within_cudas_bounds() {
    let grid = "launches[0].grid";
    let block = "launches[0].block";
    refused(|task| task.launches[0].grid = Grid::Cover(vec![]), grid, "0 dimensions");
    refused(|task| task.launches[0].grid = Grid::Cover(vec![1, 0]), grid, "y extent is zero");
    refused(|task| task.launches[0].grid = Grid::Blocks(vec![1, 65_536]), grid, "the CUDA maximum is 65535");
    refused(|task| task.launches[0].block = Block::Threads(vec![0]), block, "x extent is zero");
    refused(|task| task.launches[0].block = Block::Threads(vec![1, 1, 65]), block, "the CUDA maximum is 64");
    refused(|task| task.launches[0].block = Block::Threads(vec![64, 32]), block, "2048 threads");
    refused(
        |task| task.launches[0].shared_bytes = 1 << 20,
        "launches[0].shared_bytes",
        "exceed the largest shared memory of any device",
    );
    refused(|task| task.launches[0].repeat = 0, "launches[0].repeat", "out of range");
}

fn source() -> Program<'static> {
    Program::Source { code: "code".into(), options: vec![] }
}

#[test]
fn an_entry_is_a_symbol_or_in_cuda_cpp_a_name_expression() {
    let entry = "launches[0].entry";
    for expression in ["k<float>", "a::b::k<int, 3>", "::k", "static_cast<void(*)(int*)>(k)", "k<float[4], -1, 'a'>"] {
        let mut task = good();
        task.launches = vec![Launch::new(expression, Grid::Blocks(vec![1])); 2];
        task.program = source();
        task.check().unwrap();
        assert_eq!(task.name_expressions(), [expression]);
        refused(
            |task| task.launches[0].entry = expression.into(),
            entry,
            "only CUDA C++ source accepts name expressions",
        );
    }
    for symbol in ["k", "_Z1kIfEvPT_", "$k%1"] {
        let mut task = good();
        task.launches[0].entry = symbol.into();
        task.check().unwrap();
        task.program = source();
        task.check().unwrap();
        assert!(task.name_expressions().is_empty());
    }
    for (strange, told) in
        [("k<[]{}>", "'{'"), ("k\n#include", "'\\n'"), ("k#", "'#'"), ("k<\"a\">", "'\"'"), ("k<é>", "'é'")]
    {
        let change = |task: &mut Task<'static>| (task.program, task.launches[0].entry) = (source(), strange.into());
        refused(change, entry, told);
    }
    refused(|task| task.launches[0].entry = String::new(), entry, "empty");
    refused(|task| task.launches[0].entry = "k".repeat(1025), entry, "the maximum is 1024");
}

#[test]
fn an_offset_lies_inside_its_buffer_and_counts_elements() {
    let at = |offset| Arg::BufferAt { name: "x".into(), offset };
    let mut task = good();
    task.launches[0].args = vec![at(3)];
    task.check().unwrap();
    refused(
        |task| task.launches[0].args = vec![at(4)],
        "launches[0].args[0]",
        "offset 4 is outside buffer \"x\", which has 4 elements",
    );
}

#[test]
fn a_structure_is_padded_to_its_alignment_and_fits_a_kernels_parameters() {
    let field = "launches[0].args[0]";
    let bytes = |length, align| vec![Arg::Bytes { bytes: vec![0; length], align }];
    let mut task = good();
    task.launches[0].args = bytes(24, 8);
    task.check().unwrap();
    refused(|task| task.launches[0].args = bytes(0, 1), field, "the structure is empty");
    refused(|task| task.launches[0].args = bytes(12, 8), field, "12 bytes are not a multiple of the alignment 8");
    for align in [0, 3, 128] {
        refused(|task| task.launches[0].args = bytes(12, align), field, "a power of two up to 64");
    }
    refused(
        |task| task.launches[0].args = [bytes(32_760, 8), bytes(8, 8)].concat(),
        "launches[0].args",
        "the arguments take 32768 bytes, but CUDA passes at most 32764",
    );
}

#[test]
fn a_grid_consists_of_whole_clusters() {
    let field = "launches[0].grid.cluster";
    let change = |blocks: &[u32], cluster: &[u32]| {
        let (grid, cluster) = (Grid::Blocks(blocks.to_vec()), cluster.to_vec());
        move |task: &mut Task<'static>| (task.launches[0].grid, task.launches[0].cluster) = (grid, cluster)
    };
    let mut task = good();
    change(&[8, 2], &[4, 2])(&mut task);
    task.check().unwrap();
    assert_eq!(task.needs().compute_capability_min, Some([9, 0]));
    task.requires.compute_capability_min = Some([10, 0]);
    assert_eq!(task.needs().compute_capability_min, Some([10, 0]));
    change(&[8, 2], &[1, 1])(&mut task);
    task.requires.compute_capability_min = None;
    assert_eq!(task.needs().compute_capability_min, None, "every device can run a cluster of one block");
    refused(change(&[7], &[2]), field, "the grid has 7 blocks in x, which is not a multiple of the cluster size 2");
    refused(change(&[8], &[2, 2]), field, "the grid has 1 blocks in y");
    refused(change(&[64], &[32]), field, "exceeds 16 blocks");
    refused(change(&[8], &[0]), field, "x extent is zero");
    refused(change(&[8], &[1, 1, 1, 1]), field, "4 dimensions");
    // The worker rounds covered threads up to whole clusters.
    task.launches[0].grid = Grid::Cover(vec![1000]);
    task.launches[0].cluster = vec![2];
    task.check().unwrap();
}

#[test]
fn names_must_resolve_and_be_unique() {
    refused(|task| task.launches[0].args = vec![Arg::Progress(0)], "launches[0].args[0]", "at least 1");
    let unequal = vec![Arg::Progress(5), Arg::Progress(6)];
    refused(|task| task.launches[0].args = unequal.clone(), "launches", "progress totals 5 and 6");
    refused(|task| task.launches[0].args = vec![Arg::Buffer("z".into())], "launches[0].args[0]", "no buffer named");
    refused(|task| task.outputs = vec!["z".into()], "outputs[0]", "the task has no buffer named \"z\"");
    refused(|task| task.outputs.push("x".into()), "outputs[1]", "twice");
    refused(|task| task.buffers.push(task.buffers[0].clone()), "buffers[1].name", "two buffers are named \"x\"");
    refused(|task| task.launches.clear(), "launches", "empty");
    refused(|task| task.name = Some("a\u{1b}[31m".into()), "name", "control character");
    refused(|task| task.program = Program::Ptx("".into()), "program.ptx", "empty");
    refused(|task| task.arguments = [("a".into(), Number::Signed(1))].into(), "arguments", "only catalog kernels");
    refused(
        |task| task.launches[0].args = vec![Arg::Scalar(Dtype::U32, Number::Float(0.5))],
        "launches[0].args[0]",
        "0.5 does not fit u32",
    );
}
