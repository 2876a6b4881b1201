//! Tests of lazy loading: the driver loads a kernel's code at its first use, which may fail.

use gpufleet_schema::{FailureCode, Program, Task, Verdict};
use gpufleet_worker::executor::{Executor, LostCause, RunError};

use crate::harness::{PTX, add_one, fail, floats, lose, options, run, succeed, u32s};

async fn with_faults(rules: &str) -> Executor {
    let mut options = options();
    options.environment.push(("GPUFLEET_EMULATOR_FAULTS".to_owned(), rules.to_owned()));
    Executor::start(options).await.expect("the emulator is built beside the worker").0
}

async fn works(executor: &Executor, task: &Task<'_>) {
    assert_eq!(u32s(&succeed(executor, task).await[0]), vec![1; 10]);
}

#[tokio::test]
async fn code_that_the_driver_refuses_at_its_first_use_fails_its_job_as_a_module_would() {
    for (fault, name) in [("no-binary", "CUDA_ERROR_NO_BINARY_FOR_GPU"), ("invalid-ptx", "CUDA_ERROR_INVALID_PTX")] {
        for place in ["load", "function"] {
            let executor = with_faults(&format!("{place}:1={fault}")).await;
            let failure = fail(&executor, &add_one(10, 1)).await;
            assert_eq!(
                (failure.verdict, failure.code),
                (Verdict::User, FailureCode::LoadError),
                "{place}: {failure:?}"
            );
            assert!(failure.message.starts_with(name), "{place}: {}", failure.message);
            works(&executor, &add_one(10, 1)).await;
        }
    }
}

#[tokio::test]
async fn code_of_the_catalog_that_is_refused_at_its_first_use_is_not_its_users_fault() {
    let executor = with_faults("function:1=no-binary").await;
    let mut task = Task::new(Program::Catalog("saxpy".to_owned()));
    task.buffers = vec![floats("x", &[1.0]), floats("y", &[1.0])];
    task.arguments.insert("a".to_owned(), 2.0.into());
    let failure = fail(&executor, &gpufleet_kernels::resolve(task).unwrap()).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::LoadError), "{failure:?}");
}

#[tokio::test]
async fn room_for_a_kernels_code_is_made_of_all_that_is_kept() {
    for fault in ["out-of-memory", "init-failed"] {
        // The first look-up is for the job whose memory and module stay cached.
        let executor = with_faults(&format!("function:2={fault},function:3={fault}")).await;
        works(&executor, &add_one(10, 1)).await;
        let other = format!("{PTX}// another program");
        let task = Task { program: Program::Ptx(other.as_str().into()), ..add_one(10, 1) };
        works(&executor, &task).await;
        assert_eq!(executor.memory().cached, 40 + other.len() as u64, "{fault}: its own buffer and module");
        assert!(!run(&executor, &add_one(10, 1)).await.timings.module_cached, "{fault}: it was given up");
    }
}

#[tokio::test]
async fn a_kernel_for_whose_code_no_room_can_be_made_fails_its_job_for_lack_of_memory() {
    for fault in ["out-of-memory", "init-failed"] {
        let executor = with_faults(&format!("function:1={fault}")).await;
        let failure = fail(&executor, &add_one(10, 1)).await;
        let (verdict, code) = (Verdict::OutOfMemory, FailureCode::OutOfMemory);
        assert_eq!((failure.verdict, failure.code), (verdict, code), "{failure:?}");
        assert!(failure.message.starts_with("cuModuleGetFunction failed with"), "{}", failure.message);
        works(&executor, &add_one(10, 1)).await;
    }
}

#[tokio::test]
async fn a_device_that_is_lost_while_it_loads_a_kernel_is_to_blame_itself() {
    let executor = with_faults("function:1=device-lost").await;
    let RunError::Lost { cause, reason, .. } = lose(&executor, &add_one(10, 1)).await else { panic!("not lost") };
    assert_eq!(cause, LostCause::Device, "{reason}");
    assert_eq!(executor.lost().await.cause, LostCause::Device);
}
