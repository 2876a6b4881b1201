use std::fs;

use gpufleet::schema::{Arg, BlobDigest, Dtype, Grid, LargeOutputs, Program};

use super::*;
use gpufleet::Array;

const TOML: &str = r#"
name = "edges"
pool = "team-a"
priority = "high"
outputs = ["edges"]
labels = { team = "vision" }

[program.source]
file = "edge.cu"
options = ["--use_fast_math"]

[[buffers]]
name = "image"
data = { file = "photo.png" }

[[buffers]]
name = "edges"
dtype = "u8"
shape = [2, 3]

[[launches]]
entry = "sobel"
grid = { cover = [3, 2] }
block = { threads = [16, 16] }
args = [{ buffer = "image" }, { buffer = "edges" }, { i32 = 2 }, { i32 = 3 }]

[save]
edges = "edges.png"
"#;

fn parse(text: &str, is_toml: bool, folder: &Path) -> Result<Plan, Complaint> {
    super::parse(text, is_toml, folder, Purpose::Input)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("edge.cu"), "code").unwrap();
    let picture = Array::from_slice(&[1_u8, 2, 3, 4, 5, 6]).reshape(vec![2, 3]).unwrap();
    files::write(&folder.path().join("photo.png"), &picture).unwrap();
    folder
}

fn problem(text: &str) -> Complaint {
    parse(text, false, Path::new("")).unwrap_err()
}

#[test]
fn a_toml_file_with_files_in_it_becomes_a_job() {
    let folder = folder();
    let plan = parse(TOML, true, folder.path()).unwrap();
    let checked = plan.job.build().unwrap();
    assert_eq!((checked.pool.as_str(), checked.priority), ("team-a", Priority::High));
    assert_eq!(plan.saves["edges"], folder.path().join("edges.png"));
    assert_eq!(plan.source.unwrap().text, "code");
    assert!(matches!(&checked.task.program, Program::Source { code, options } if code == "code" && options.len() == 1));
    assert_eq!((checked.task.buffers[0].dtype, checked.task.buffers[0].shape.as_slice()), (Dtype::U8, &[2, 3][..]));
    assert_eq!(checked.task.inline_bytes(), 6);
    let launch = &checked.task.launches[0];
    assert_eq!(launch.grid, Grid::Cover(vec![3, 2]));
    assert_eq!(launch.args[3], Arg::Scalar(Dtype::I32, 3.into()));
}

#[test]
fn a_task_file_may_have_a_counter_of_the_progress() {
    let toml = r#"
        buffers = []
        program = { source = { code = "code" } }
        launches = [{ entry = "train", grid = { blocks = [1] }, args = [{ progress = 20000 }] }]"#;
    let json = r#"{"buffers": [], "program": {"source": {"code": "code"}},
        "launches": [{"entry": "train", "grid": {"blocks": [1]}, "args": [{"progress": 20000}]}]}"#;
    for (text, is_toml) in [(toml, true), (json, false)] {
        let checked = parse(text, is_toml, Path::new("")).unwrap().job.build().unwrap();
        assert_eq!(checked.task.launches[0].args, [Arg::Progress(20_000)]);
        assert!(parse(&text.replace("20000", "\"all\""), is_toml, Path::new("")).is_err());
    }
}

#[test]
fn the_documented_task_file_becomes_a_job() {
    let page = include_str!("../../../../../docs/src/reference/task-file.md");
    let (_, example) = page.split_once("```toml\n").expect("the page has an example");
    let (example, _) = example.split_once("```").expect("the example ends");
    let folder = folder();
    let plan = parse(example, true, folder.path()).unwrap();
    let checked = plan.job.build().unwrap();
    assert_eq!(checked.task.launches[0].args.len(), 4);
    assert_eq!(plan.saves["drawing"], folder.path().join("edges.png"));
}

#[test]
fn a_task_file_describes_every_kind_of_launch() {
    let text = r#"
        buffers = [{ name = "x", dtype = "f32", shape = [64] }]
        program = { source = { code = "code" } }

        [[launches]]
        entry = "ns::scale<float, 2>"
        grid = { blocks = [8], cluster = [2], cooperative = true }
        args = [{ offset = 16, buffer = "x" }, { bytes = "AADAPwAAAMA=", align = 4 }, { bytes = [1, 2, 255] }]
    "#;
    let task = parse(text, true, Path::new("")).unwrap().job.build().unwrap().task;
    let launch = &task.launches[0];
    assert_eq!((launch.cooperative, launch.cluster.as_slice()), (true, &[2][..]));
    let wanted = [
        Arg::BufferAt { name: "x".into(), offset: 16 },
        Arg::Bytes { bytes: [1.5_f32, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect(), align: 4 },
        Arg::Bytes { bytes: vec![1, 2, 255], align: 1 },
    ];
    assert_eq!(launch.args, wanted);
    let slip = |from: &str, to: &str| parse(&text.replace(from, to), true, Path::new("")).unwrap_err().message;
    assert!(slip("cooperative", "coperative").contains("launches[0]: unknown field `coperative`"));
    assert!(slip("blocks = [8], ", "").contains("launches[0]: a grid needs"));
    assert!(slip("cluster = [2]", "cover = [2]").contains("launches[0]: a grid takes cover or blocks, not both"));
    assert!(slip("{ bytes = [1, 2, 255] }", "{ u8 = 1, align = 4 }").contains("only bytes take an alignment"));
    assert!(slip("bytes = [1, 2, 255]", "bytes = [1], buffer = \"x\"").contains("unexpected"));
}

#[test]
fn the_same_task_in_json_means_the_same() {
    let folder = folder();
    let value: Value = toml::from_str(TOML).unwrap();
    let [from_toml, from_json] = [(TOML.to_owned(), true), (value.to_string(), false)].map(|(text, is_toml)| {
        let task = parse(&text, is_toml, folder.path()).unwrap().job.build().unwrap().task;
        Task { job_id: "01990f3e-0000-7000-8000-000000000001".parse().unwrap(), ..task }
    });
    assert_eq!(from_toml, from_json);
}

#[test]
fn a_task_on_the_wire_is_a_task_file_too() {
    let job = Job::catalog("saxpy").scalar("a", 2.0).input("x", &[1.0_f32]).input("y", &[1.0_f32]);
    let task = job.build().unwrap().task;
    let plan = parse(&serde_json::to_string(&task).unwrap(), false, Path::new("")).unwrap();
    assert_eq!(plan.job.build().unwrap().task, task);
}

#[test]
fn a_task_file_may_name_blobs() {
    let digest = BlobDigest::of(b"x");
    let text = format!(
        r#"{{ "program": {{ "ptx": "p" }}, "large_outputs": "blob",
             "buffers": [{{ "name": "x", "dtype": "u8", "shape": [1], "data": {{ "blob": "{digest}" }} }}],
             "launches": [{{ "entry": "k", "grid": {{ "cover": [1] }} }}] }}"#
    );
    let task = parse(&text, false, Path::new("")).unwrap().job.build().unwrap().task;
    assert_eq!((&task.buffers[0].data, task.large_outputs), (&Data::Blob(digest), LargeOutputs::Blob));
    let digits = problem(&text.replace("blake3:", "sha1:")).message;
    assert_eq!(digits, "buffers[0]: a blob name is blake3: or sha256: followed by 64 lower-case hexadecimal digits");
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    assert!(problem("[]").message.starts_with("not a JSON object"));
    assert_eq!(problem(r#"{"bufers": []}"#).message, "unknown field bufers");
    let launch = r#"{"program": {"ptx": "p"}, "launches": [{"entry": "k", "grid": {"cover": [1]}, "blok": "auto"}]}"#;
    assert_eq!(problem(launch).message, "unknown field launches[0].blok");
    let launch = r#"{"program": {"ptx": "p"}, "launches": [{"entry": "k"}]}"#;
    assert_eq!(problem(launch).message, "launches[0]: missing field `grid`");
    let buffer = r#"{"program": {"ptx": "p"}, "buffers": [{"name": "x", "dtype": "f31", "shape": [1]}]}"#;
    assert!(problem(buffer).message.starts_with("buffers[0]: "), "{}", problem(buffer).message);
    assert_eq!(problem(r#"{"outputs": []}"#).message, "missing field `program`");
    assert!(problem(r#"{"pool": "a.b"}"#).message.starts_with("pool: "));
    assert!(problem(r#"{"program": {"source": {"file": "none.cu"}}}"#).message.contains("none.cu"));
}
