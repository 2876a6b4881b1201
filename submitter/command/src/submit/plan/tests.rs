use std::fs;

use clap::Parser;
use gpufleet::{
    Array, CheckedJob,
    schema::{Dtype, Grid, Priority},
};

use super::*;
use crate::{exit::Exit, submit::chained::ChainedInputs};

/// A folder with inputs, and what a command line in it means. `@` stands for the folder.
struct Scene {
    folder: tempfile::TempDir,
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn planned(options: &Options, has_store: bool) -> Result<Plan, Complaint> {
    Plan::read(options, has_store, &ChainedInputs::new())?.checked(options)
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        files::write(&path("x.npy"), &Array::from_slice(&[1.0_f32, 2.0, 3.0])).unwrap();
        files::write(&path("long.npy"), &Array::from_slice(&[1.0_f32; 4])).unwrap();
        files::write(&path("wide.npy"), &Array::from_slice(&[1.0_f64, 2.0, 3.0])).unwrap();
        files::write(&path("huge.npy"), &Array::from_slice(&vec![1.0_f32; 2_200_000])).unwrap();
        fs::write(path("k.cu"), "extern \"C\" __global__ void k(float *x) {}").unwrap();
        fs::write(path("wrong.npy"), "no array").unwrap();
        fs::write(path("latin.cu"), [0xe9, 0x0a]).unwrap();
        Self { folder }
    }

    fn options(&self, line: &str) -> Result<Options, clap::Error> {
        let line = line.replace('@', self.folder.path().to_str().unwrap());
        let words = std::iter::once("submit").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options)
    }

    fn plan(&self, line: &str) -> Plan {
        planned(&self.options(line).unwrap(), false).unwrap_or_else(|complaint| panic!("{}", complaint.render(false)))
    }

    fn with_store(&self, line: &str) -> Result<Plan, Complaint> {
        planned(&self.options(line).unwrap(), true)
    }

    /// What a person reads, with the folder's name taken out.
    fn complaint(&self, line: &str) -> String {
        let complaint = planned(&self.options(line).unwrap(), false).unwrap_err();
        assert!(matches!(complaint.exit, Exit::BadInput | Exit::Usage), "{complaint:?}");
        complaint.render(false).replace(self.folder.path().to_str().unwrap(), "@")
    }

    fn usage(&self, line: &str) -> String {
        let error = self.options(line).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
        error.to_string()
    }
}

#[test]
fn a_catalog_line_becomes_a_short_task() {
    let scene = Scene::new();
    let plan =
        scene.plan("saxpy --arg a=2.0 --in x=@/x.npy --inout y=@/x.npy --out y=@/r.npy --pool team-a --priority low");
    let checked = plan.job.build().unwrap();
    assert_eq!((checked.pool.as_str(), checked.priority), ("team-a", Priority::Low));
    assert_eq!(checked.task.outputs, ["y"]);
    assert!(checked.task.launches.is_empty());
    assert_eq!(plan.saves["y"], scene.folder.path().join("r.npy"));
    let all = scene.plan("saxpy --arg a=2.0 --in x=@/x.npy --inout y=@/x.npy").job.build().unwrap();
    assert!(all.task.outputs.is_empty(), "nothing named means all");
}

#[test]
fn a_source_line_becomes_a_launch() {
    let scene = Scene::new();
    let code = "extern \"C\" __global__ void four(float *x, double *e, const unsigned char *f, unsigned n) {}";
    fs::write(scene.folder.path().join("four.cu"), code).unwrap();
    let plan = scene.plan(
        "--source @/four.cu --cover 3 --block 128 --inout x=@/x.npy --fill f=u8[4]:7 --out e=@/e.bin:f64[2,2] \
         --args x,e,f,n=3 --compile-option --use_fast_math --time-limit 30s --label team=vision",
    );
    let task = plan.job.build().unwrap().task;
    assert_eq!(task.outputs, ["e", "x"]);
    assert_eq!(task.launches[0].grid, Grid::Cover(vec![3]));
    assert_eq!(task.launches[0].entry, "four");
    assert_eq!(task.launches[0].args[3], Arg::Scalar(Dtype::U32, 3_u32.into()));
    assert_eq!(task.buffers.iter().map(|buffer| buffer.name.as_str()).collect::<Vec<_>>(), ["x", "f", "e"]);
    assert_eq!(task.limits.time_limit_ms, Some(30_000));
    assert_eq!(plan.source.unwrap().path, scene.folder.path().join("four.cu"));
}

#[test]
fn a_source_line_may_request_cooperative_launches_and_clusters() {
    let scene = Scene::new();
    let line = "--source @/k.cu --entry scale<float> --grid 8 --cluster 2 --cooperative --inout x=@/x.npy --args x";
    let task = scene.plan(line).job.build().unwrap().task;
    assert_eq!((task.launches[0].cooperative, task.launches[0].cluster.as_slice()), (true, &[2][..]));
    assert_eq!(task.launches[0].entry, "scale<float>");
}

#[test]
fn a_line_may_require_a_device_and_bound_the_attempts() {
    let scene = Scene::new();
    let line =
        "saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy --min-memory 40GiB --compute-capability 8.0 --attempts 5";
    let task = scene.plan(line).job.build().unwrap().task;
    assert_eq!(task.requires.memory_bytes_min, Some(40 << 30));
    assert_eq!(task.requires.compute_capability_min, Some([8, 0]));
    assert_eq!(task.limits.attempts_max, Some(5));
    assert!(scene.usage("saxpy --attempts 21").contains("from 1 to 20"));
}

#[test]
fn a_line_may_choose_the_id() {
    let scene = Scene::new();
    let id = "01990f3e-0000-7000-8000-000000000001";
    let plan = scene.plan(&format!("saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy --id {id}"));
    assert_eq!(plan.job.id().to_string(), id);
    assert!(scene.usage("saxpy --id 1").contains("is not a UUID"));
}

#[test]
fn a_cubin_line_becomes_a_launch() {
    let scene = Scene::new();
    fs::write(scene.folder.path().join("k.cubin"), b"\x7fELF and more").unwrap();
    let task = scene.plan("--cubin @/k.cubin --entry k --cover 3 --inout x=@/x.npy --args x").job.build().unwrap().task;
    assert!(
        matches!(&task.program, Program::Cubin(image) if image.resolved_len(Dtype::U8) == 13),
        "{:?}",
        task.program
    );
    assert!(scene.complaint("--cubin @/k.cu --entry k --cover 3").contains("it is not a cubin"));
}

#[test]
fn each_bad_input_is_one_clear_message() {
    let scene = Scene::new();
    let lines = [
        ("unknown kernel", "saxpi --arg a=2.0"),
        ("missing argument", "saxpy --in x=@/x.npy --inout y=@/x.npy"),
        ("surplus argument", "saxpy --arg a=2 --arg b=3 --in x=@/x.npy --inout y=@/x.npy"),
        ("missing buffer", "saxpy --arg a=2 --in x=@/x.npy"),
        ("wrong dtype", "saxpy --arg a=2 --in x=@/wide.npy --inout y=@/x.npy"),
        ("wrong shape", "saxpy --arg a=2 --in x=@/x.npy --inout y=@/long.npy"),
        ("unreadable file", "saxpy --arg a=2 --in x=@/none.npy --inout y=@/x.npy"),
        ("too much for a message", "saxpy --arg a=2 --in x=@/huge.npy --inout y=@/huge.npy"),
        ("no output of that name", "saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy --out z=@/z.npy"),
        ("output folder missing", "saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy --out y=@/none/y.npy"),
        ("no grid", "--source @/k.cu --entry k"),
        ("absurd grid", "--source @/k.cu --entry k --grid 1,70000"),
        ("absurd block", "--source @/k.cu --entry k --cover 10 --block 64,64"),
        ("argument without a buffer", "--source @/k.cu --entry k --cover 10 --args y"),
        ("output without a buffer", "--source @/k.cu --entry k --cover 10 --out y=@/y.npy"),
        ("source that is no text", "--source @/latin.cu --entry k --cover 10"),
        ("raw bytes without a form", "--source @/k.cu --entry k --cover 10 --in x=@/k.cu"),
        ("bytes that disagree with the form", "--source @/k.cu --entry k --cover 10 --in x=@/k.cu:f32[4]"),
        ("a scalar twice", "saxpy --arg a=2 --arg a=3 --in x=@/x.npy --inout y=@/x.npy"),
        ("a buffer twice", "saxpy --arg a=2 --in x=@/x.npy --inout x=@/x.npy"),
        ("a file that is not what its name says", "saxpy --arg a=2 --in x=@/wrong.npy --inout y=@/x.npy"),
        ("a folder", "saxpy --arg a=2 --in x=@ --inout y=@/x.npy"),
        ("two files for one output", "saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy --out y=@/1 --out y=@/2"),
    ];
    let told: Vec<String> =
        lines.into_iter().map(|(what, line)| format!("# {what}\n{}", scene.complaint(line))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn with_a_blob_store_only_the_rest_of_the_message_counts() {
    let scene = Scene::new();
    let line = "saxpy --arg a=2 --in x=@/huge.npy --inout y=@/huge.npy";
    let plan = scene.with_store(line).unwrap();
    let task = plan.job.build().unwrap().task;
    let pending = task.buffers.iter().filter(|buffer| CheckedJob::is_pending(buffer));
    assert_eq!(pending.count(), 2, "the arrays are still in their files");
    assert!(task.blob_bytes() > MESSAGE_BYTES_MAX as u64);
    assert!(plan.has_store && !scene.plan("saxpy --arg a=2 --in x=@/x.npy --inout y=@/x.npy").has_store);
}

#[test]
fn a_message_of_arrays_that_are_too_small_for_the_store_is_refused() {
    let scene = Scene::new();
    let array = Array::from_slice(&vec![1_u8; BLOB_BYTES_MIN as usize - 1]);
    files::write(&scene.folder.path().join("below.bin"), &array).unwrap();
    let inputs: String = (0..17).map(|n| format!(" --in x{n}=@/below.bin:u8[{}]", BLOB_BYTES_MIN - 1)).collect();
    let line = format!("--source @/k.cu --entry k --cover 1 --in large=@/huge.npy{inputs}");
    let complaint = scene.with_store(&line).unwrap_err();
    assert_eq!(complaint.exit, Exit::BadInput);
    assert!(
        complaint.message.ends_with("its largest buffers are x0 (1024 KiB) and x1 (1024 KiB)"),
        "{}",
        complaint.message
    );
    assert!(complaint.hint.unwrap().starts_with("arrays of 1 MiB or more already go through the blob store"));
}

#[test]
fn a_job_may_name_more_than_a_gibibyte_of_blobs() {
    let scene = Scene::new();
    let task = format!(
        r#"{{ "program": {{ "source": {{ "file": "k.cu" }} }}, "launches": [{{ "entry": "k", "grid": {{ "cover": [3] }} }}],
              "buffers": [{{ "name": "x", "data": {{ "file": "huge.npy" }} }},
                          {{ "name": "kept", "dtype": "u8", "shape": [1073741824], "data": {{ "blob": "{}" }} }}] }}"#,
        BlobDigest::of(b"")
    );
    fs::write(scene.folder.path().join("task.json"), task).unwrap();
    let task = scene.with_store("-f @/task.json").unwrap().job.build().unwrap().task;
    assert_eq!(task.buffers[1].data, Data::Blob(BlobDigest::of(b"")));
}

#[test]
fn conflicting_options_are_a_usage_error() {
    let scene = Scene::new();
    assert!(scene.usage("").contains("<KERNEL|--source <FILE>|--ptx <FILE>|--cubin <FILE>|--file <FILE>>"));
    assert!(scene.usage("saxpy --source @/k.cu --entry k").contains("cannot be used with"));
    assert!(scene.usage("--cubin @/k.cubin").contains("--entry"));
    assert!(scene.usage("saxpy --cover 10").contains("cannot be used with"));
    assert!(scene.usage("--source @/k.cu --entry k --cover 0").contains("an extent is zero"));
    assert!(scene.usage("saxpy --detach --out y=y.npy").contains("cannot be used with"));
    assert!(scene.usage("saxpy --pool a.b").contains("contains '.'"));
    assert!(scene.usage("saxpy --timeout 10").contains("with a unit"));
}

#[test]
fn outputs_that_a_task_file_saves_are_returned() {
    let scene = Scene::new();
    let task = |outputs: &str| {
        format!(
            r#"{{ "program": {{ "source": {{ "file": "k.cu" }} }}, {outputs} "save": {{ "y": "y.bin" }},
                 "buffers": [{{ "name": "x", "data": {{ "file": "x.npy" }} }},
                             {{ "name": "y", "dtype": "f32", "shape": [3], "data": "zeros" }}],
                 "launches": [{{ "entry": "k", "grid": {{ "cover": [3] }}, "args": [{{ "buffer": "x" }}] }}] }}"#
        )
    };
    let outputs = |text: &str, line: &str| {
        fs::write(scene.folder.path().join("task.json"), text).unwrap();
        scene.plan(line).job.build().unwrap().task.outputs
    };
    assert_eq!(outputs(&task(""), "-f @/task.json"), ["y"]);
    assert_eq!(outputs(&task(r#""outputs": ["y"],"#), "-f @/task.json"), ["y"]);
    assert_eq!(outputs(&task(""), "-f @/task.json --out x=@/x.bin"), ["x", "y"]);
    let catalog = r#"{ "program": { "catalog": "saxpy" }, "arguments": { "a": 2 }, "save": { "y": "y.bin" },
        "buffers": [{ "name": "x", "data": { "file": "x.npy" } }, { "name": "y", "data": { "file": "x.npy" } }] }"#;
    assert!(outputs(catalog, "-f @/task.json").is_empty(), "a catalog kernel returns everything");
}
