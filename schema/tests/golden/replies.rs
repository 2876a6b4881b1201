//! Examples of replies.

use gpufleet_schema::{
    AttemptState, Dtype, Failure, FailureCode, Inline, Output, OutputData, PrintfOutput, RanOn, Reply, SessionUse,
    Timings, Verdict,
};

use crate::{id, tasks::little_endian};

/// The name of the blob with [3.0, 4.5, 7.5].
const Y_BLOB: &str = "sha256:74759d668a0010daad42e0fe0b0605fd6cd13b7c3fcefd7dee975f3392a81227";

pub(crate) fn ran_on() -> RanOn {
    RanOn { worker: "w1".parse().unwrap(), device: 0, device_name: "a device".into(), emulated: true }
}

pub(crate) fn succeeded() -> Reply<'static> {
    Reply {
        version: 1,
        job_id: Some(id(1)),
        attempt: 1,
        state: AttemptState::Succeeded,
        failure: None,
        outputs: vec![Output {
            name: "y".into(),
            dtype: Dtype::I16,
            shape: vec![2, 1],
            data: Inline::from(vec![1, 0, 255, 255]).into(),
        }],
        timings: Timings {
            queue_us: 1500,
            wait_us: 20,
            fetch_us: 0,
            compile_us: 0,
            load_us: 44,
            copy_in_us: 9,
            launches_us: vec![5, 6],
            copy_out_us: 7,
            total_us: 120,
            device_bytes_peak: 24,
            module_cached: true,
        },
        ran_on: Some(ran_on()),
        printf_output: None,
        session: None,
    }
}

pub(crate) fn failed() -> Reply<'static> {
    Reply {
        job_id: Some(id(2)),
        attempt: 3,
        state: AttemptState::Failed,
        failure: Some(
            Failure::new(Verdict::User, FailureCode::CompileError, "identifier \"x\" is undefined")
                .with_detail("kernel.cu(3): error: identifier \"x\" is undefined")
                .at_line(Some(3)),
        ),
        outputs: vec![],
        timings: Timings::default(),
        ran_on: None,
        ..succeeded()
    }
}

/// The reply to [`blob_task`]: one output is in the blob store, and one in the reply.
pub(crate) fn blob_reply() -> Reply<'static> {
    let output =
        |name: &str, data: OutputData<'static>| Output { name: name.into(), dtype: Dtype::F32, shape: vec![3], data };
    Reply {
        job_id: Some(id(5)),
        outputs: vec![
            output("y", OutputData::Blob(Y_BLOB.parse().unwrap())),
            output("x", Inline::from(little_endian([1.0, 2.0, 3.0])).into()),
        ],
        timings: Timings { fetch_us: 3100, ..succeeded().timings },
        ..succeeded()
    }
}

pub(crate) fn printed() -> PrintfOutput {
    PrintfOutput { text: "thread 0:\tx=1.5 µm\nthread 1:\n".into(), dropped_bytes: 70_000, is_tail: false }
}

/// The reply to a job whose kernels printed.
pub(crate) fn printed_reply() -> Reply<'static> {
    Reply { printf_output: Some(printed()), ..succeeded() }
}

/// The reply to a host program that exited with 3.
pub(crate) fn host_reply() -> Reply<'static> {
    let message = "the program exited with 3";
    let used = SessionUse { busy_us: 7, exit_code: Some(3), ..SessionUse::default() };
    Reply {
        job_id: Some(id(8)),
        attempt: 1,
        failure: Some(Failure::new(Verdict::User, FailureCode::ProgramFailed, message)),
        ran_on: Some(ran_on()),
        printf_output: Some(PrintfOutput { text: "epoch 90\n".into(), dropped_bytes: 70_000, is_tail: true }),
        session: Some(Box::new(used)),
        ..failed()
    }
}

/// The reply to a truncated body.
pub(crate) fn unreadable() -> Reply<'static> {
    let message = "the body is not JSON: EOF while parsing a string at line 1 column 40";
    Reply {
        job_id: None,
        state: AttemptState::Dead,
        attempt: 1,
        failure: Some(Failure::new(Verdict::User, FailureCode::MalformedTask, message)),
        ..failed()
    }
}
