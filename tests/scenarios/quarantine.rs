//! A program that repeatedly kills executors is refused for a while. Other programs are not. (fault 38)

use gpufleet_schema::{FailureCode, Verdict};
use gpufleet_tests::{Ground, WAIT, kernels};

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_crashes_repeatedly_is_refused_and_others_run() {
    let ground = Ground::shared("quarantine").await;
    let worker = ground.worker_with(&["--pool", "other"]).await;
    let fleet = ground.client().await;
    let run = async |job| fleet.submit(job).await.unwrap().wait(WAIT).await;
    for _ in 0..3 {
        let error = run(kernels::writes_beyond_its_buffer()).await.unwrap_err();
        assert_eq!(error.failure().unwrap().code, FailureCode::KernelFault);
    }
    for _ in 0..5 {
        let error = run(kernels::writes_beyond_its_buffer()).await.unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::Quarantined));
        assert!(failure.message.contains("3 executors") && failure.message.contains("until 20"), "{failure:?}");
    }
    run(kernels::doubles(&[1.0])).await.unwrap();
    let elsewhere = kernels::writes_beyond_its_buffer().pool("other".parse().unwrap());
    let error = run(elsewhere).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, FailureCode::KernelFault, "the program still runs in another pool");
    assert!(worker.is_alive());
    ground.check_history(10).await;
}
