use gpufleet_schema::{Arg, BlobDigest, Block, Buffer, Data, Dtype, Grid, Inline, Launch, Number, Program, Task};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{ResolveError, resolve};
use crate::{catalog, sample::samples};

fn buffer(name: &str, dtype: Dtype, shape: &[u64]) -> Buffer<'static> {
    Buffer::new(name, dtype, shape.to_vec(), Data::Fill(Number::Signed(1)))
}

fn task(kernel: &str, arguments: &[(&str, Number)], buffers: Vec<Buffer<'static>>) -> Task<'static> {
    let arguments = arguments.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    Task { arguments, buffers, ..Task::new(Program::Catalog(kernel.to_owned())) }
}

fn saxpy() -> Task<'static> {
    let buffers = vec![buffer("y", Dtype::F32, &[1000]), buffer("x", Dtype::F32, &[1000])];
    task("saxpy", &[("a", Number::Float(2.0))], buffers)
}

fn error(task: Task<'static>) -> (String, String) {
    let error = resolve(task).unwrap_err();
    (error.field().to_owned(), error.to_string())
}

#[track_caller]
fn assert_refused(task: Task<'static>, field: &str, problem: &str) {
    let (got_field, message) = error(task);
    assert_eq!((got_field.as_str(), message.as_str()), (field, format!("{field}: {problem}").as_str()));
}

#[test]
fn a_saxpy_task_becomes_one_launch_with_its_buffers_in_order() {
    let plain = resolve(saxpy()).unwrap();
    assert_eq!(plain.program, Program::Catalog("saxpy".to_owned()));
    assert!(plain.arguments.is_empty());
    assert_eq!(plain.buffers.iter().map(|buffer| buffer.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(plain.outputs, ["y"]);
    let args = vec![
        Arg::Scalar(Dtype::F32, Number::Float(2.0)),
        Arg::Buffer("x".to_owned()),
        Arg::Buffer("y".to_owned()),
        Arg::Scalar(Dtype::U64, Number::Signed(1000)),
    ];
    let launch = Launch { block: Block::Threads(vec![256]), args, ..Launch::new("saxpy", Grid::Cover(vec![1000])) };
    assert_eq!(plain.launches, [launch]);
    plain.check().unwrap();
}

#[test]
fn outputs_and_scratch_start_as_zeros_and_only_outputs_are_returned() {
    let plain = resolve(task("reduce_sum", &[], vec![buffer("values", Dtype::F32, &[5000])])).unwrap();
    let forms: Vec<_> =
        plain.buffers.iter().map(|b| (b.name.as_str(), b.shape.clone(), b.data == Data::Zeros)).collect();
    assert_eq!(forms, [("values", vec![5000], false), ("sum", vec![1], true), ("partial_sums", vec![5], true)]);
    assert_eq!(plain.outputs, ["sum"]);
    assert_eq!(
        plain.launches.iter().map(|launch| launch.grid.clone()).collect::<Vec<_>>(),
        [Grid::Blocks(vec![5]), Grid::Blocks(vec![1])]
    );
}

#[test]
fn missing_scalars_get_their_defaults() {
    let plain = resolve(task("mandelbrot", &[("width", 100.into())], Vec::new())).unwrap();
    assert_eq!(plain.buffers[0].shape, [512, 100]);
    assert_eq!(plain.launches[0].args[1], Arg::Scalar(Dtype::U32, 100.into()));
    assert_eq!(plain.launches[0].args[6], Arg::Scalar(Dtype::U32, 256.into()));
}

#[test]
fn an_out_buffer_may_be_given_and_outputs_may_be_chosen() {
    let mut sum = saxpy();
    sum.program = Program::Catalog("vector_add".to_owned());
    sum.arguments.clear();
    sum.buffers = vec![
        buffer("a", Dtype::F32, &[8]),
        Buffer { data: Data::Zeros, ..buffer("sum", Dtype::F32, &[8]) },
        buffer("b", Dtype::F32, &[8]),
    ];
    sum.outputs = vec!["sum".to_owned()];
    assert_eq!(resolve(sum).unwrap().outputs, ["sum"]);

    let options = ["spot", "strike", "years"].map(|name| buffer(name, Dtype::F32, &[3])).to_vec();
    let mut priced = task("black_scholes", &[("rate", 0.01.into()), ("volatility", 0.2.into())], options);
    priced.outputs = vec!["puts".to_owned()];
    assert_eq!(resolve(priced).unwrap().outputs, ["puts"]);
}

#[test]
fn tasks_with_programs_of_their_own_pass_through_unchanged() {
    let ptx = Task { program: Program::Ptx("…".into()), ..saxpy() };
    assert_eq!(resolve(ptx.clone()).unwrap(), ptx);
}

#[test]
fn inline_bytes_are_passed_on_without_a_copy() {
    let bytes = [0_u8; 16];
    let inline = |name: &str| Buffer { data: Data::Inline(Inline::from(&bytes[..])), ..buffer(name, Dtype::F32, &[4]) };
    let mut borrowed = Task::new(Program::Catalog("vector_add".to_owned()));
    borrowed.buffers = vec![inline("a"), inline("b")];
    let plain = resolve(borrowed).unwrap();
    let Data::Inline(Inline::Bytes(kept)) = &plain.buffers[0].data else { panic!("the contents stay") };
    assert!(std::ptr::eq(kept.as_ref(), &bytes[..]));
}

#[test]
fn blobs_that_a_kernel_only_reads_are_shared() {
    let stored = |name: &str| Buffer { data: Data::Blob(BlobDigest::of(b"")), ..buffer(name, Dtype::F32, &[4]) };
    let task = Task { buffers: vec![stored("x"), stored("y")], ..saxpy() };
    let shared: Vec<bool> = resolve(task.clone()).unwrap().buffers.iter().map(|buffer| buffer.share).collect();
    assert_eq!(shared, [true, false], "saxpy writes to y");
    let wrong = Task { buffers: vec![stored("x"), Buffer { share: true, ..stored("y") }], ..task };
    assert_refused(wrong, "buffers.y.share", "the kernel writes to this buffer, so jobs can't share it; remove this");
    assert!(resolve(saxpy()).unwrap().buffers.iter().all(|buffer| !buffer.share), "there is no blob");
}

#[test]
fn an_unknown_kernel_is_refused_with_the_nearest_name() {
    let named = |name: &str| Task { program: Program::Catalog(name.to_owned()), ..saxpy() };
    assert_refused(named("saxpi"), "program.catalog", "the catalog has no kernel \"saxpi\" (did you mean saxpy?)");
    assert_refused(named("fourier"), "program.catalog", "the catalog has no kernel \"fourier\"");
}

const SAXPY: &str = "saxpy(a: f32, x: in f32[n], y: inout f32[n])";

#[test]
fn missing_and_surplus_arguments_are_named() {
    let mut missing = saxpy();
    missing.arguments.clear();
    assert_refused(missing, "arguments.a", &format!("missing; the signature of the kernel is {SAXPY}"));

    let mut surplus = saxpy();
    surplus.arguments.insert("alpha".to_owned(), 1.into());
    assert_refused(surplus, "arguments.alpha", &format!("the kernel has no such argument; its signature is {SAXPY}"));
}

#[test]
fn missing_surplus_and_doubled_buffers_are_named() {
    let mut missing = saxpy();
    missing.buffers.pop();
    assert_refused(missing, "buffers.x", &format!("missing; the signature of the kernel is {SAXPY}"));

    let mut surplus = saxpy();
    surplus.buffers.push(buffer("xx", Dtype::F32, &[1000]));
    assert_refused(
        surplus,
        "buffers.xx",
        &format!("the kernel has no such buffer (did you mean x?); its signature is {SAXPY}"),
    );

    let mut twice = saxpy();
    twice.buffers.push(buffer("x", Dtype::F32, &[1000]));
    assert_refused(twice, "buffers.x", "given twice");
}

#[test]
fn dtype_rank_and_extents_must_be_those_of_the_manifest() {
    let with_x = |x| Task { buffers: vec![x, buffer("y", Dtype::F32, &[1000])], ..saxpy() };
    assert_refused(with_x(buffer("x", Dtype::F64, &[1000])), "buffers.x.dtype", "f64, but the kernel requires f32");
    assert_refused(
        with_x(buffer("x", Dtype::F32, &[10, 100])),
        "buffers.x.shape",
        "[10, 100] has 2 dimensions, but the kernel requires f32[n]",
    );
    assert_refused(with_x(buffer("x", Dtype::F32, &[0])), "buffers.x.shape", "[0] has no elements");
    assert_refused(
        with_x(buffer("x", Dtype::F32, &[999])),
        "buffers.y.shape",
        "[1000] sets n to 1000, but buffers.x.shape sets it to 999",
    );

    let bodies =
        |columns| vec![buffer("positions", Dtype::F32, &[7, columns]), buffer("velocities", Dtype::F32, &[7, 4])];
    let step = |columns| task("nbody_step", &[("dt", 0.1.into()), ("softening", 0.1.into())], bodies(columns));
    resolve(step(4)).unwrap();
    assert_refused(step(3), "buffers.positions.shape", "[7, 3] must be [7, 4], computed from f32[n, 4]");
}

#[test]
fn a_given_output_must_have_the_computed_shape_and_no_contents() {
    let with_sum = |sum| {
        let buffers = vec![buffer("a", Dtype::F32, &[8]), buffer("b", Dtype::F32, &[8]), sum];
        task("vector_add", &[], buffers)
    };
    let zeros = |shape: &[u64]| Buffer { data: Data::Zeros, ..buffer("sum", Dtype::F32, shape) };
    assert_refused(with_sum(zeros(&[9])), "buffers.sum.shape", "[9] must be [8], computed from f32[n]");
    assert_refused(
        with_sum(buffer("sum", Dtype::F32, &[8])),
        "buffers.sum.data",
        "an output starts as zeros; remove its data",
    );
}

#[test]
fn a_scalar_must_fit_its_dtype() {
    let with_a = |a: Number| task("saxpy", &[("a", a)], saxpy().buffers);
    assert_refused(with_a(1e300.into()), "arguments.a", &format!("{} does not fit f32", 1e300_f64));
    resolve(with_a(Number::Float(f64::INFINITY))).unwrap();
    resolve(with_a(Number::Signed(3))).unwrap();

    let with_width = |width: Number| task("mandelbrot", &[("width", width)], Vec::new());
    assert_refused(with_width((-1).into()), "arguments.width", "-1 does not fit u32");
    assert_refused(with_width(1.5.into()), "arguments.width", "1.5 does not fit u32");
    assert_refused(with_width((1_u64 << 32).into()), "arguments.width", "4294967296 does not fit u32");
    assert_refused(with_width(0.into()), "arguments.width", "width is 0, but must be at least 1: a picture has pixels");
}

#[test]
fn giant_results_are_refused_before_anything_is_allocated() {
    let size =
        |width: u32, height: u32| task("mandelbrot", &[("width", width.into()), ("height", height.into())], Vec::new());
    let (field, message) = error(size(u32::MAX, u32::MAX));
    assert_eq!(field, "buffers.iterations.shape");
    assert!(message.contains("exceeds 1099511627776 bytes"), "{message}");

    // An outer product: small inputs, a giant result.
    let vectors = vec![buffer("a", Dtype::F32, &[1 << 24, 1]), buffer("b", Dtype::F32, &[1, 1 << 24])];
    assert_eq!(error(task("matmul_tiled", &[], vectors)).0, "buffers.c.shape");
}

#[test]
fn extents_beyond_what_a_parameter_holds_are_blamed_on_the_buffer() {
    let tall = vec![buffer("matrix", Dtype::F32, &[1 << 33, 1])];
    assert_refused(
        task("transpose", &[], tall),
        "buffers.matrix.shape",
        "the kernel's parameter rows would be 8589934592, which is outside 0 to 4294967295",
    );
    let all = vec![buffer("a", Dtype::F32, &[u64::MAX]), buffer("b", Dtype::F32, &[u64::MAX])];
    assert_eq!(error(task("vector_add", &[], all)).0, "buffers.a.shape");
}

#[test]
fn a_filter_without_a_centre_is_refused() {
    let buffers = vec![buffer("image", Dtype::F32, &[9, 9]), buffer("filter", Dtype::F32, &[3, 4])];
    let problem = "columns % 2 is 0, but must be equal to 1: a filter has as many columns left of its centre as right";
    assert_refused(task("convolve_2d", &[], buffers), "buffers.filter.shape", problem);
}

#[test]
fn a_task_with_launches_or_unknown_outputs_is_refused() {
    let mut launched = saxpy();
    launched.launches = resolve(saxpy()).unwrap().launches;
    assert_refused(launched, "launches", "a catalog kernel defines its own launches; remove this field");

    let asked = |outputs: &[&str]| Task { outputs: outputs.iter().map(|name| (*name).to_owned()).collect(), ..saxpy() };
    assert_refused(asked(&["y", "y"]), "outputs[1]", "listed twice");
    let problem = format!("the kernel has no output \"x\"; its signature is {SAXPY}");
    assert_refused(asked(&["x"]), "outputs[0]", &problem);
}

#[test]
fn every_sample_resolves_to_a_task_that_checks_out() {
    for kernel in catalog().iter() {
        for sample in samples(&kernel.name) {
            let plain = resolve(sample.task).unwrap_or_else(|error: ResolveError| panic!("{}: {error}", kernel.name));
            plain.check().unwrap();
            assert_eq!(plain.launches.len(), kernel.launches.len());
            let outputs: Vec<_> = plain.outputs.iter().filter_map(|name| plain.buffer(name)).collect();
            assert_eq!(outputs.len(), sample.expected.len());
            for (output, expected) in outputs.into_iter().zip(&sample.expected) {
                assert_eq!(
                    (&output.name, output.dtype, &output.shape),
                    (&expected.name, expected.dtype, &expected.shape)
                );
                assert_eq!(output.bytes(), Some(expected.bytes.len() as u64));
            }
        }
    }
}

/// Generates extents of all magnitudes.
fn extents() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..40, 1_u64..5000, any::<u64>().prop_map(|bits| bits >> (bits % 64)), 1_u64 << 20..1 << 36]
}

fn numbers() -> impl Strategy<Value = Number> {
    prop_oneof![
        extents().prop_map(Number::from),
        any::<i32>().prop_map(Number::from),
        any::<f64>().prop_map(Number::from)
    ]
}

proptest! {
    #[test]
    fn whatever_the_sizes_a_task_is_refused_or_checks_out(
        which in 0_usize..13,
        sizes in proptest::collection::vec(extents(), 4),
        scalars in proptest::collection::vec(numbers(), 6),
    ) {
        let kernel = catalog().iter().nth(which).expect("there are thirteen kernels");
        // One size for each symbol, so that shapes agree and only the sizes vary.
        let mut symbols: Vec<&str> = Vec::new();
        let mut extent = |rule: &'static crate::expression::Expression| match rule.symbol() {
            None => rule.evaluate(&|_| None).expect("the given buffers' other extents are numbers"),
            Some(symbol) => {
                let known = symbols.iter().position(|known| *known == symbol);
                let place = known.unwrap_or(symbols.len());
                if known.is_none() {
                    symbols.push(symbol);
                }
                sizes[place % sizes.len()]
            }
        };
        let given = kernel.buffers.iter().filter(|spec| spec.role.is_given());
        let buffers = given.map(|spec| {
            let shape: Vec<u64> = spec.shape.iter().map(&mut extent).collect();
            buffer(&spec.name, spec.dtype, &shape)
        });
        let arguments: Vec<_> = kernel.scalars.iter().map(|spec| spec.name.as_str()).zip(scalars).collect();
        let (name, buffers) = (&kernel.name, buffers.collect());
        match resolve(task(name, &arguments, buffers)) {
            Ok(plain) => {
                prop_assert_eq!(plain.check(), Ok(()));
                prop_assert_eq!(plain.buffers.len(), kernel.buffers.len());
            }
            Err(error) => prop_assert!(
                ["buffers.", "arguments."].iter().any(|part| error.field().starts_with(part)), "{}", error
            ),
        }
    }
}
