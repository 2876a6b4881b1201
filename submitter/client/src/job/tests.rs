use gpufleet_schema::{Block, Dtype, Grid};

use super::*;

fn problem(job: Job) -> String {
    job.build().unwrap_err().to_string()
}

#[test]
fn a_source_job_becomes_the_task_that_was_described() {
    let job = Job::source("code")
        .compile_option("--use_fast_math")
        .name("edges")
        .label("team", "a")
        .pool("team-a".parse().unwrap())
        .priority(Priority::High)
        .input_shaped("image", [2, 2], &[1_u8, 2, 3, 4])
        .zeros("edges", Dtype::F32, [2, 2])
        .entry("sobel")
        .cover([2, 2])
        .block([16, 16])
        .shared_bytes(64)
        .arg_buffer("image")
        .arg_buffer("edges")
        .arg(2_i32)
        .output("edges")
        .time_limit(Duration::from_secs(30));
    let id = job.id();
    let checked = job.build().unwrap();
    assert_eq!(checked.task.job_id, id);
    assert_eq!((checked.pool.as_str(), checked.priority), ("team-a", Priority::High));
    assert_eq!(checked.task.limits.time_limit_ms, Some(30_000));
    let launch = &checked.task.launches[0];
    assert_eq!(launch.grid, Grid::Cover(vec![2, 2]));
    assert_eq!(launch.block, Block::Threads(vec![16, 16]));
    assert_eq!(launch.args[2], Arg::Scalar(Dtype::I32, Number::Signed(2)));
}

#[test]
fn a_launch_can_be_cooperative_or_clustered_and_take_offsets_and_structures() {
    let job = Job::source("code")
        .zeros("x", Dtype::F32, [64])
        .entry("scale<float>")
        .blocks([8])
        .cooperative()
        .cluster([2])
        .arg_buffer_at("x", 16)
        .arg_buffer_at("x", 0)
        .arg_bytes([1, 2, 3, 4], 4)
        .output("x");
    let launch = &job.build().unwrap().task.launches[0];
    assert!(launch.cooperative && launch.cluster == [2] && launch.entry == "scale<float>");
    let wanted = [
        Arg::BufferAt { name: "x".into(), offset: 16 },
        Arg::Buffer("x".into()),
        Arg::Bytes { bytes: vec![1, 2, 3, 4], align: 4 },
    ];
    assert_eq!(launch.args, wanted);
    let ptx = Job::ptx("text").entry("scale<float>").cover([1]);
    assert!(problem(ptx).starts_with("launches[0].entry: \"scale<float>\" is not a kernel symbol"));
}

#[test]
fn a_catalog_job_is_checked_against_its_signature_and_sent_without_launches() {
    let job = |a: &str| Job::catalog("saxpy").scalar(a, 2.0).input("x", &[1.0_f32, 2.0]).input("y", &[1.0_f32, 2.0]);
    let checked = job("a").output("y").build().unwrap();
    assert!(checked.task.launches.is_empty(), "the worker derives the launches");
    let signature = "saxpy(a: f32, x: in f32[n], y: inout f32[n])";
    assert_eq!(problem(job("b")), format!("arguments.a: missing; the signature of the kernel is {signature}"));
    assert!(problem(Job::catalog("saxpi")).contains("saxpi"));
}

#[test]
fn a_limit_below_a_millisecond_is_rounded_up() {
    let job = Job::source("code").entry("k").cover([1]).time_limit(Duration::from_nanos(1));
    assert_eq!(job.build().unwrap().task.limits.time_limit_ms, Some(1));
}

#[test]
fn a_decimal_is_rounded_to_its_dtype_before_it_is_sent() {
    let long: Number = "1.00000017881393432617187499".parse().unwrap();
    let nearest = Number::Float(f32::from_bits(0x3f80_0001).into());
    let job = Job::source("code").entry("k").cover([1]).arg_scalar(Dtype::F32, long);
    let job = job.buffer(Buffer::new("x", Dtype::F32, vec![1], Data::Fill(long)));
    let task = job.build().unwrap().task;
    assert_eq!(task.launches[0].args, [Arg::Scalar(Dtype::F32, nearest)]);
    assert_eq!(task.buffers[0].data, Data::Fill(nearest));
    let saxpy = Job::catalog("saxpy").scalar("a", long).input("x", &[1.0_f32]).input("y", &[1.0_f32]);
    assert_eq!(saxpy.build().unwrap().task.arguments["a"], nearest);
}

#[test]
fn errors_name_the_missing_or_misplaced_field() {
    assert_eq!(
        problem(Job::source("code").entry("k")),
        "launches[0].grid: missing; say how many threads to cover, or how many blocks"
    );
    assert_eq!(
        problem(Job::source("code").cover([1]).entry("k").cover([1])),
        "launches: grid belongs to a launch; call entry() first"
    );
    assert_eq!(
        problem(Job::ptx("text").compile_option("-G")),
        "program: compile options are for CUDA C, this program is ptx"
    );
    assert!(problem(Job::source("code").entry("k").cover([1]).arg_buffer("x")).contains("no buffer named"));
    assert!(problem(Job::source("code").entry("k").cover([0])).contains("x extent is zero"));
}

#[test]
fn a_buffer_whose_elements_do_not_fill_its_shape_is_refused() {
    let job = Job::source("code").input_shaped("x", [3], &[1_u8, 2]).entry("k").cover([1]);
    assert_eq!(problem(job), "buffers.x.data: holds 2 bytes, but [3] of u8 needs 3");
}

#[test]
fn a_host_program_is_a_task_with_its_files_in_a_buffer() {
    let job = Job::host(["python", "train.py"], "torch")
        .variable("SEED", "7")
        .download("out/**")
        .network(true)
        .upload(vec![1, 2, 3]);
    let task = job.build().unwrap().task;
    assert_eq!(task.limits.attempts_max, Some(1), "it may have had effects");
    let Program::Host(program) = &task.program else { panic!("{:?}", task.program) };
    assert_eq!((program.label().as_str(), program.environment.as_deref()), ("python train.py", Some("torch")));
    assert_eq!((program.variables["SEED"].as_str(), program.network), ("7", true));
    assert_eq!(program.download, ["out/**"]);
    assert_eq!((task.buffers[0].name.as_str(), task.buffers[0].shape.as_slice()), ("upload", &[3][..]));
    let task = Job::host_in_image(["true"], "torch:2").build().unwrap().task;
    let Program::Host(program) = &task.program else { panic!("{:?}", task.program) };
    assert_eq!((program.environment.as_deref(), program.image.as_deref()), (None, Some("torch:2")));
    assert_eq!(task.limits.attempts_max, Some(1));
}

#[test]
fn settings_of_host_programs_are_refused_in_other_jobs() {
    let kernel = || Job::source("code").entry("k").cover([1]);
    assert_eq!(problem(kernel().network(true)), "program: the network is for host programs, this program is source");
    assert!(problem(kernel().download("x")).contains("a download is for host programs"));
    assert!(problem(Job::host(["true"], "torch").download("/etc/*")).contains("leaves the working directory"));
    assert!(problem(Job::host(["true"], "")).contains("program.host.environment"));
}
