//! Every catalog kernel returns the result of its CPU reference through the whole fleet.

use gpufleet::Job;
use gpufleet_kernels::{
    catalog,
    sample::{compare, samples},
};
use gpufleet_tests::{Ground, WAIT};

#[tokio::test(flavor = "multi_thread")]
async fn every_catalog_kernel_returns_the_result_of_its_cpu_reference() {
    let (ground, _worker, fleet) = Ground::served("catalog").await;
    let mut checked = 0;
    for kernel in catalog().iter() {
        for (index, sample) in samples(&kernel.name).into_iter().enumerate() {
            let mut handle = fleet.submit(Job::from_task(sample.task)).await.unwrap();
            let result = handle.wait(WAIT).await.unwrap_or_else(|error| panic!("{} {index}: {error}", kernel.name));
            assert!(result.ran_on.as_ref().unwrap().emulated, "the reply says that the device is emulated");
            for expected in &sample.expected {
                let got = result.array(&expected.name).unwrap();
                assert_eq!((got.dtype(), got.shape()), (expected.dtype, &*expected.shape), "{}", kernel.name);
                let name = &kernel.name;
                compare(expected, got.bytes()).unwrap_or_else(|mismatch| panic!("{name} {index}: {mismatch}"));
            }
            checked += 1;
        }
    }
    assert!(checked >= catalog().iter().count(), "every kernel has a sample");
    ground.check_history(checked).await;
}
