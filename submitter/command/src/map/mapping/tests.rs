use arrow_array::{Float32Array, Int64Array};
use arrow_schema::DataType;
use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(kernel: &str, more: &[&str]) -> Options {
    let line = ["map", "--parquet", "in.parquet", "out.parquet", "--kernel", kernel];
    Line::try_parse_from([&line[..], more].concat()).unwrap().options
}

/// A file with an id and three columns for kernels.
fn schema() -> Schema {
    let floats = ["x", "y", "fee"].map(|name| Field::new(name, DataType::Float32, true));
    let ids = Field::new("id", DataType::Int64, false);
    Schema::new([&[ids][..], &floats].concat())
}

fn plan(kernel: &str, more: &[&str]) -> Result<Mapping, Complaint> {
    Mapping::plan(&options(kernel, more), &schema())
}

fn written_names(mapping: &Mapping) -> Vec<&str> {
    mapping.schema().fields().iter().map(|field| field.name().as_str()).collect()
}

fn inputs_of(mapping: &Mapping) -> Vec<(&str, &str)> {
    mapping.input_columns().iter().map(|input| (input.buffer.as_str(), input.column.as_str())).collect()
}

#[test]
fn columns_are_bound_in_order_or_by_name() {
    for (columns, bound) in [
        ("fee,y", [("x", "fee"), ("y", "y")]),
        ("y=fee,x=x", [("x", "x"), ("y", "fee")]),
        ("y=fee,y", [("x", "y"), ("y", "fee")]),
        ("fee,fee", [("x", "fee"), ("y", "fee")]),
    ] {
        assert_eq!(inputs_of(&plan("saxpy", &["--columns", columns]).unwrap()), bound, "{columns}");
    }
}

#[test]
fn an_output_replaces_the_column_of_its_name_or_comes_last() {
    let names = |more: &[&str]| {
        let mapping = plan("saxpy", &[&["--columns", "x,y"], more].concat()).unwrap();
        written_names(&mapping).join(",")
    };
    assert_eq!(names(&[]), "id,x,y,fee");
    assert_eq!(names(&["--out-columns", "total"]), "id,x,y,fee,total");
    assert_eq!(names(&["--out-columns", "y=x"]), "id,x,y,fee");
    assert_eq!(names(&["--drop", "y,fee"]), "id,x,y");
    assert_eq!(names(&["--drop-all"]), "y");
}

#[test]
fn only_columns_that_are_used_are_read() {
    let read = |more: &[&str]| plan("vector_add", &[&["--columns", "fee,x"], more].concat()).unwrap().read().to_vec();
    assert_eq!(read(&[]), [0, 1, 2, 3]);
    assert_eq!(read(&["--drop", "id,x"]), [1, 2, 3]);
    assert_eq!(read(&["--drop-all"]), [1, 3]);
}

#[test]
fn wrong_columns_are_refused_with_advice() {
    for (kernel, more, says, hint) in [
        ("saxpi", "x,y", "no kernel \"saxpi\"", "did you mean saxpy"),
        ("fourier", "x,y", "no kernel", "--source FILE"),
        ("reduce_sum", "x", "does not compute each row on its own", "black_scholes, saxpy, vector_add"),
        ("scan_inclusive", "x", "does not compute each row on its own", "saxpy"),
        ("saxpy", "x", "no column was given for input y", "saxpy(a: f32"),
        ("saxpy", "x,y,fee", "3 columns are given for the inputs of the kernel, which are x, y", "saxpy(a: f32"),
        ("saxpy", "x,fees", "the file has no column fees", "did you mean fee?"),
        ("saxpy", "x,nothing", "the file has no column nothing", "id, x, y, fee"),
        ("saxpy", "id,y", "column id is Int64, but input x of the kernel is f32", "convert the column to f32"),
        ("saxpy", "z=x,y", "the kernel has no input z", "saxpy("),
        ("saxpy", "x=x,x=y", "input x has two columns", "keep one"),
        ("saxpy", "x,y --drop none", "the file has no column none", "id, x, y, fee"),
        ("saxpy", "x,y --out-columns a,b", "2 columns are given for the outputs of the kernel, which are y", "saxpy("),
        ("black_scholes", "x,y,fee --out-columns a,a", "two outputs of the kernel would be column a", "--out-columns"),
        ("black_scholes", "x,y,fee --out-columns calls=puts", "two outputs", "--out-columns"),
    ] {
        let words: Vec<&str> = ["--columns"].into_iter().chain(more.split(' ')).collect();
        let complaint = plan(kernel, &words).unwrap_err();
        assert_eq!(complaint.exit, Exit::BadInput);
        assert!(complaint.message.contains(says), "{more}: {}", complaint.message);
        assert!(complaint.hint.as_ref().is_some_and(|text| text.contains(hint)), "{more}: {:?}", complaint.hint);
    }
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let twice = ["x", "y", "x"].map(|name| Field::new(name, DataType::Float32, true));
    let complaint = Mapping::plan(&options("saxpy", &["--columns", "x,y"]), &Schema::new(twice.to_vec())).unwrap_err();
    assert!(complaint.message.contains("two columns named x"), "{}", complaint.message);
}

#[test]
fn a_batch_goes_to_the_kernel_and_back() {
    let mapping = plan("saxpy", &["--columns", "fee,x", "--drop", "y"]).unwrap();
    let floats = |values: [f32; 2]| Arc::new(Float32Array::from(values.to_vec())) as ArrayRef;
    let ids = Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef;
    let batch =
        RecordBatch::try_from_iter([("id", ids.clone()), ("x", floats([1.0, 2.0])), ("fee", floats([3.0, 4.0]))])
            .unwrap();
    let inputs = mapping.inputs(&batch, 0).unwrap();
    let array = |values: [f32; 2]| Array::from_slice(&values);
    assert_eq!(inputs, [("x".to_owned(), array([3.0, 4.0])), ("y".to_owned(), array([1.0, 2.0]))]);
    let output = mapping.output(&batch, &[("y".to_owned(), array([5.0, 6.0]))]).unwrap();
    assert_eq!(output.column_by_name("id").unwrap(), &ids);
    assert_eq!(output.column_by_name("y").unwrap(), &floats([5.0, 6.0]));
    for wrong in [vec![], vec![("y".to_owned(), Array::from_slice(&[1.0_f32]))]] {
        assert_eq!(mapping.output(&batch, &wrong).unwrap_err().exit, Exit::FleetFailed);
    }
}

#[test]
fn nulls_are_refused_with_their_row_unless_they_are_filled() {
    let holes = Arc::new(Float32Array::from(vec![Some(1.0), None])) as ArrayRef;
    let batch = |columns: [&str; 4]| {
        let ids = Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef;
        let column = |name: &str| if name == "id" { ids.clone() } else { holes.clone() };
        RecordBatch::try_from_iter(columns.map(|name| (name, column(name)))).unwrap()
    };
    let batch = batch(["id", "x", "y", "fee"]);
    let refused = plan("saxpy", &["--columns", "x,y"]).unwrap().inputs(&batch, 1_000).unwrap_err();
    assert!(refused.message.contains("column x has nulls") && refused.message.contains("row 1001"), "{refused:?}");
    assert!(refused.hint.unwrap().contains("--fill-null 0"));
    let filled = plan("saxpy", &["--columns", "x,y", "--fill-null", "-2.5"]).unwrap().inputs(&batch, 0).unwrap();
    assert_eq!(filled[0].1, Array::from_slice(&[1.0_f32, -2.5]));
}

#[test]
fn a_number_for_nulls_must_fit_the_inputs() {
    check_fill(Number::Float(2.5), Dtype::F32).unwrap();
    let unfit = check_fill(Number::Float(2.5), Dtype::I32).unwrap_err();
    assert!(unfit.message.starts_with("--fill-null: 2.5"), "{}", unfit.message);
}
