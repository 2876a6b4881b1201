use std::fs;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

const BLEND: &str =
    r#"extern "C" __global__ void blend(const double *x, double *y, long long *count, double share, int rows) {}"#;

/// Plans the kernel `blend` of a file with this code.
fn plan(code: &str, more: &str) -> Result<(Kernel, Options), Complaint> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blend.cu");
    fs::write(&file, code).unwrap();
    let line =
        ["map", "--parquet", "in.parquet", "out.parquet", "--kernel", "blend", "--source", file.to_str().unwrap()];
    let line = line.into_iter().chain(more.split(' '));
    let options = Line::try_parse_from(line).unwrap().options;
    Ok((Kernel::plan(&options)?, options))
}

fn names<'a>(buffers: impl Iterator<Item = &'a Buffer>) -> Vec<&'a str> {
    buffers.map(|buffer| buffer.name.as_str()).collect()
}

#[test]
fn a_pointer_is_an_output_and_an_input_if_a_column_names_it() {
    let (kernel, _) = plan(BLEND, "--columns a --arg share=0.5 --rows rows").unwrap();
    assert_eq!((names(kernel.inputs()), names(kernel.outputs())), (vec!["x"], vec!["y", "count"]));
    let (kernel, _) = plan(BLEND, "--columns a,y=b --arg share=0.5 --rows rows").unwrap();
    assert_eq!((names(kernel.inputs()), names(kernel.outputs())), (vec!["x", "y"], vec!["y", "count"]));
    assert_eq!(kernel.element_bytes_max(), 8);
    assert_eq!(kernel.rows_max(), 2_147_483_647);
    assert_eq!(kernel.signature(), "blend(x: in f64, y: out f64, count: out i64, share: f64, rows: i32)");
    let real = "--columns a --arg share=0.5 --rows rows --compile-option -DREAL=float";
    let (kernel, _) = plan(&BLEND.replace("double", "REAL"), real).unwrap();
    assert_eq!(kernel.signature(), "blend(x: in f32, y: out f32, count: out i64, share: f32, rows: i32)");
}

#[test]
fn a_job_has_the_parameters_in_their_order_and_as_many_threads_as_rows() {
    let (kernel, options) =
        plan(BLEND, "--columns a --arg share=0.5 --rows rows --compile-option --use_fast_math").unwrap();
    let job = kernel.job(&options, vec![("x".to_owned(), Array::from_slice(&[1.0_f64, 2.0, 3.0]))]).build().unwrap();
    let launch = serde_json::to_value(&job.task.launches[0]).unwrap();
    assert_eq!(launch["entry"], "blend");
    assert_eq!(launch["grid"], serde_json::json!({"cover": [3]}));
    let args = serde_json::json!([{"buffer": "x"}, {"buffer": "y"}, {"buffer": "count"}, {"f64": 0.5}, {"i32": 3}]);
    assert_eq!(launch["args"], args);
    assert_eq!(job.task.outputs, ["y", "count"]);
    let shapes: Vec<_> =
        job.task.buffers.iter().map(|buffer| (buffer.name.as_ref(), buffer.dtype, &buffer.shape)).collect();
    let three = vec![3];
    assert_eq!(shapes, [("x", Dtype::F64, &three), ("y", Dtype::F64, &three), ("count", Dtype::I64, &three)]);
}

#[test]
fn a_kernel_that_can_not_be_mapped_is_refused_with_advice() {
    let one = |parameters: &str| format!("extern \"C\" __global__ void blend({parameters}) {{}}");
    for (code, more, says, hint) in [
        (one("const float *x, float *y"), "", "no parameter n for the number of rows", "--rows NAME"),
        (one("const float *x, float *y, float n"), "", "parameter n for the number of rows is f32", "32 or 64 bits"),
        (one("const float *x, float *y, int n, int m"), "", "parameter m of the kernel has no value", "--arg m=VALUE"),
        (one("const float *x, float *y, int n"), "--arg n=3", "--arg gives it a value", "remove --arg"),
        (one("const float *x, float *y, int n"), "--arg facter=3", "no number facter", "the kernel is blend("),
        (
            one("const float *x, float *y, int n, int factor"),
            "--arg facter=3",
            "no number facter",
            "did you mean factor?",
        ),
        (one("const float *x, float *y, int n, int m"), "--arg m=2.5", "--arg m: 2.5", "fits i32"),
        (one("const float *x, float *y, int n"), "--rows m", "no number m", "the kernel is blend("),
        (one("const float *x, int n"), "", "has no output", "without const"),
        (one("float *y, int n"), "", "reads no column", "--columns y=COLUMN"),
        (one("const T *x, float *y, int n"), "", "parameter x of kernel blend is const T * x", "double"),
        (one("").replace("blend", "blond"), "", "no kernel blend; its kernels are blond", "did you mean blond?"),
        (one("").replace("extern \"C\"", ""), "", "not extern \"C\"", "before __global__"),
    ] {
        let words = format!("--columns a {more}");
        let complaint = plan(&code, words.trim()).unwrap_err();
        assert!(complaint.message.contains(says), "{code}: {}", complaint.message);
        assert!(complaint.hint.as_ref().is_some_and(|text| text.contains(hint)), "{code}: {:?}", complaint.hint);
    }
}
