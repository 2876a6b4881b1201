//! A task file launches instances of C++ templates, passes structures by value and parts of buffers, and starts
//! cooperative grids and clusters.

use std::fs;

use gpufleet::Job;
use gpufleet_schema::{Dtype, FailureCode, Verdict};
use gpufleet_tests::{Ground, WAIT};

const CAPABILITY: &str = "GPUFLEET_EMULATOR_COMPUTE_CAPABILITY";

const SOURCE: &str = "#include <cooperative_groups.h>
namespace shapes {
struct Ramp { float slope; float start; };
template <typename T> __global__ void ramp(Ramp ramp, T *out) { out[threadIdx.x] = T(ramp.slope * threadIdx.x + ramp.start); }
}
extern \"C\" __global__ void turn(const float *in, float *between, float *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    between[i] = in[i];
    cooperative_groups::this_grid().sync();
    out[i] = between[n - 1 - i];
}
";

const TASK: &str = r#"
outputs = ["floats", "turned", "integers"]
program = { source = { file = "shapes.cu", options = ["-std", "c++17", "--device-int128"] } }
save = { turned = "turned.bin", integers = "integers.bin" }

[[buffers]]
name = "floats"
dtype = "f32"
shape = [12]

[[buffers]]
name = "between"
dtype = "f32"
shape = [8]

[[buffers]]
name = "turned"
dtype = "f32"
shape = [8]

[[buffers]]
name = "integers"
dtype = "i32"
shape = [8]

[[launches]]
entry = "shapes::ramp<float>"
grid = { blocks = [1] }
block = { threads = [8] }
args = [{ bytes = "AAAAPwAAIEE=", align = 4 }, { buffer = "floats", offset = 4 }]

[[launches]]
entry = "shapes::ramp<int>"
grid = { cover = [8] }
block = { threads = [8] }
args = [{ bytes = "AAAAPwAAIEE=", align = 4 }, { buffer = "integers" }]

[[launches]]
entry = "turn"
grid = { blocks = [4], cooperative = true }
block = { threads = [2] }
args = [{ buffer = "floats", offset = 4 }, { buffer = "between" }, { buffer = "turned" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_task_file_launches_templates_structures_offsets_and_cooperative_grids() {
    let (ground, _worker) = Ground::with_worker("launches").await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shapes.cu"), SOURCE).unwrap();
    fs::write(folder.path().join("task.toml"), TASK).unwrap();
    ground.gpufleet(folder.path(), &["submit", "-f", "task.toml"]).await.ok();
    let words = |file: &str| -> Vec<[u8; 4]> {
        fs::read(folder.path().join(file)).unwrap().chunks_exact(4).map(|bytes| bytes.try_into().unwrap()).collect()
    };
    let turned: Vec<f32> = words("turned.bin").into_iter().map(f32::from_le_bytes).collect();
    assert_eq!(turned, [13.5, 13.0, 12.5, 12.0, 11.5, 11.0, 10.5, 10.0]);
    let integers: Vec<i32> = words("integers.bin").into_iter().map(i32::from_le_bytes).collect();
    assert_eq!(integers, [10, 10, 11, 11, 12, 12, 13, 13]);

    // On the command line, with a mistake in the name expression.
    let line = "submit --source shapes.cu --entry shapes::ramp<Half> --grid 1 --block 8 --zeros x=f32[12] \
                --args ramp:bytes=0000003f00002041@4,x@4";
    let line: Vec<&str> = line.split_whitespace().collect();
    let ended = ground.gpufleet(folder.path(), &line).await;
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("entry shapes::ramp<Half>: error: identifier \"Half\" is undefined"), "{ended:?}");
    let line: Vec<&str> =
        line.into_iter().map(|word| if word == "shapes::ramp<Half>" { "shapes::ramp<float>" } else { word }).collect();
    ground.gpufleet(folder.path(), &line).await.ok();
    ground.check_history(3).await;
}

fn pairs() -> Job {
    Job::source("extern \"C\" __global__ void pairs(float *x) { x[blockIdx.x] = 1.0f; }")
        .zeros("x", Dtype::F32, [8])
        .entry("pairs")
        .blocks([8])
        .block([1])
        .cluster([2])
        .arg_buffer("x")
        .output("x")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_of_clusters_requires_a_device_that_supports_them() {
    let ground = Ground::shared("clusters").await;
    let _old = ground.worker_in(&[], &[(CAPABILITY, "8.0")]).await;
    let fleet = ground.client().await;
    let error = fleet.submit(pairs()).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::RequirementsNotMet));
    assert!(failure.message.contains("has compute capability 9.0"), "{}", failure.message);

    let _new = ground.worker_in(&[], &[(CAPABILITY, "9.0")]).await;
    let error = fleet.submit(pairs()).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LaunchError));
    assert!(failure.message.contains("the emulated device does not support clusters"), "{}", failure.message);
    ground.check_history(2).await;
}
