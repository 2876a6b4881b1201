use gpufleet_schema::{LargeOutputs, Program};

use super::*;

/// Creates a task that returns buffers of these sizes.
fn returning(sizes: &[u64], large_outputs: LargeOutputs) -> Task<'static> {
    let mut task = Task::new(Program::Ptx("".into()));
    for (number, bytes) in sizes.iter().enumerate() {
        let name = format!("y{number}");
        task.outputs.push(name.clone());
        task.buffers.push(Buffer::new(name, Dtype::U8, vec![*bytes], Data::Zeros));
    }
    task.large_outputs = large_outputs;
    task
}

fn leaving(sizes: &[u64], large_outputs: LargeOutputs) -> Vec<u32> {
    let layout = Layout::of(&returning(sizes, large_outputs)).unwrap();
    let staged: u64 = layout.offsets.iter().zip(sizes).filter_map(|(offset, bytes)| offset.map(|_| *bytes)).sum();
    assert!(layout.bytes >= staged && staged <= STAGED_OUTPUT_BYTES_MAX + MESSAGE_BYTES_MAX as u64);
    layout.leaving.iter().map(|output| output.buffer).collect()
}

#[test]
fn large_outputs_leave_only_if_they_are_too_large_to_be_staged() {
    let half = STAGED_OUTPUT_BYTES_MAX / 2;
    assert!(leaving(&[half, 5, half], LargeOutputs::Blob).is_empty());
    assert_eq!(leaving(&[half, 5, half + 1], LargeOutputs::Blob), [0, 2]);
    assert_eq!(leaving(&[1 << 40, BLOB_BYTES_MIN - 1, BLOB_BYTES_MIN], LargeOutputs::Blob), [0, 2]);
    assert!(leaving(&[MESSAGE_BYTES_MAX as u64], LargeOutputs::Inline).is_empty());
}

#[test]
fn outputs_beyond_what_a_reply_carries_are_refused_unless_they_may_be_blobs() {
    let refused = |sizes: &[u64], large| Layout::of(&returning(sizes, large)).unwrap_err();
    let max = MESSAGE_BYTES_MAX as u64;
    let failure = refused(&[max, 1], LargeOutputs::Inline);
    assert_eq!(failure.code, FailureCode::OutputTooLarge);
    assert!(failure.message.contains("but a reply carries at most 16.0 MiB"), "{}", failure.message);
    let small = vec![BLOB_BYTES_MIN - 1; 17];
    assert_eq!(refused(&small, LargeOutputs::Blob).code, FailureCode::OutputTooLarge);
}
