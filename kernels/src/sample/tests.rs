use gpufleet_schema::Program;

use super::{compare, samples};
use crate::catalog;

#[test]
fn every_kernel_has_samples_of_several_sizes() {
    for kernel in catalog().iter() {
        let samples = samples(&kernel.name);
        assert!(samples.len() >= 2, "{} has {}", kernel.name, samples.len());
        for sample in &samples {
            assert_eq!(sample.task.program, Program::Catalog(kernel.name.clone()));
            assert!(sample.task.launches.is_empty() && sample.task.outputs.is_empty());
            for expected in &sample.expected {
                assert_eq!(expected.tolerance, kernel.tolerance(&expected.name));
                assert!(compare(expected, &expected.bytes).is_ok());
            }
        }
    }
    assert!(samples("no such kernel").is_empty());
}

#[test]
fn samples_are_the_same_at_every_call_but_for_the_job_id() {
    for kernel in catalog().iter() {
        for (one, other) in samples(&kernel.name).into_iter().zip(samples(&kernel.name)) {
            assert_eq!((one.task.buffers, one.task.arguments), (other.task.buffers, other.task.arguments));
            assert_eq!(one.expected, other.expected);
        }
    }
}

#[test]
fn no_expected_result_is_trivial() {
    for kernel in catalog().iter() {
        let largest = samples(&kernel.name).pop().expect("there are samples");
        for expected in largest.expected {
            assert!(expected.bytes.iter().any(|byte| *byte != 0), "{} expects zeros in {}", kernel.name, expected.name);
        }
    }
}
