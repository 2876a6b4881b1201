//! The meaning of each failure code and what to do about it. The reference page is generated from these texts.

use crate::{
    FailureCode,
    Verdict::{self, Infrastructure, OutOfMemory, Timeout, User},
};

/// The explanation of a failure code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// The verdicts that come with the code. Empty for a code that this release never reports.
    pub verdicts: &'static [Verdict],
    /// Whether the fleet runs the job again by itself.
    pub retried: &'static str,
    pub meaning: &'static str,
    pub advice: &'static str,
}

/// Declares the exhaustive match over the codes, so that a code without an entry does not compile.
macro_rules! explanations {
    ($($code:ident { verdicts: $verdicts:expr, retried: $retried:literal, meaning: $meaning:literal, advice: $advice:literal })*) => {
        impl FailureCode {
            pub const fn explanation(self) -> Explanation {
                match self {
                    $(Self::$code => Explanation {
                        verdicts: &$verdicts,
                        retried: $retried,
                        meaning: $meaning,
                        advice: $advice,
                    },)*
                    Self::Later(_) => Explanation {
                        verdicts: &[],
                        retried: "no",
                        meaning: "The program that reported the failure is of a later release, which has added this code.",
                        advice: "Read the failure's message. Upgrade this program to learn more.",
                    },
                }
            }
        }
    };
}

explanations! {
    MalformedTask {
        verdicts: [User],
        retried: "no",
        meaning: "The worker cannot read the message: wrong encoding, wrong types, missing fields, too many tasks, or more than \
                  16 MiB. The message is dead-lettered.",
        advice: "Correct the producer. Validate its messages against the JSON Schema of a task."
    }
    UnsupportedVersion {
        verdicts: [User],
        retried: "no",
        meaning: "The task names a `version` that the worker does not read. The message is dead-lettered.",
        advice: "Run producer and worker from releases that share the contract's major version."
    }
    InvalidTask {
        verdicts: [User],
        retried: "no",
        meaning: "The task can be read but makes no sense: a shape that does not fit its data, an unknown buffer name, a bound \
                  exceeded. The message names the field.",
        advice: "Correct the field that the message names."
    }
    UnknownKernel {
        verdicts: [User],
        retried: "no",
        meaning: "The worker's catalog has no kernel of this name.",
        advice: "Check the name with `gpufleet kernels`. If it is right, upgrade the worker."
    }
    RequirementsNotMet {
        verdicts: [User],
        retried: "no",
        meaning: "No worker of the pool has a device that meets the task's `requires` or its cluster launches.",
        advice: "Require less, or submit to a pool whose devices qualify. `gpufleet workers` lists them."
    }
    Policy {
        verdicts: [User],
        retried: "no",
        meaning: "The pool does not allow the program's kind, lacks a trusted signature for it, or allows only shorter limits.",
        advice: "Use a catalog kernel, sign the program (`gpufleet submit --sign-key`), lower the limits, or use another pool."
    }
    CompileError {
        verdicts: [User, Infrastructure],
        retried: "no",
        meaning: "NVRTC rejected the CUDA C, or it took too much time or memory. The failure's `detail` is the compiler's log and \
                  `line` the line in the source. With the verdict `infrastructure` the worker could not compile at all.",
        advice: "Correct the source. With `infrastructure`, repair NVRTC on the worker; the message says how."
    }
    LoadError {
        verdicts: [User, Infrastructure],
        retried: "no",
        meaning: "The CUDA driver refused to load the PTX or cubin. The verdict is `infrastructure` if a catalog kernel is refused.",
        advice: "Check the program's target architecture and PTX version against the device and its driver."
    }
    LaunchError {
        verdicts: [User],
        retried: "no",
        meaning: "The kernel cannot be launched as the task asks: unknown entry, wrong arguments, or a grid, block or shared \
                  memory beyond what the device has.",
        advice: "Compare entry, arguments, grid, block and shared memory with the program. An entry needs `extern \"C\"`."
    }
    KernelFault {
        verdicts: [User],
        retried: "no",
        meaning: "The kernel faulted on the device, for example by an access outside its buffers.",
        advice: "Check indices against the buffers' shapes. The emulated device names the access and the line."
    }
    Quarantined {
        verdicts: [User],
        retried: "no",
        meaning: "The program killed three executors within ten minutes. The worker refuses it for five minutes.",
        advice: "Find the fault that ended the program's last jobs. A corrected program is not refused."
    }
    TimeLimit {
        verdicts: [Timeout],
        retried: "no",
        meaning: "The job ran longer on the device than `limits.time_limit_ms`. The worker killed its executor, or \
                  ended the session.",
        advice: "Raise the limit (`--time-limit`) or split the job."
    }
    QueueLimit {
        verdicts: [Timeout],
        retried: "no",
        meaning: "The job did not start within `limits.queue_limit_ms`. Its state is `expired`.",
        advice: "Raise the limit (`--queue-limit`) or start more workers."
    }
    OutOfMemory {
        verdicts: [OutOfMemory],
        retried: "once, if the device ran short although the job should have fitted",
        meaning: "The job needs more device memory than `limits.memory_bytes_max` allows or than any device of the pool has.",
        advice: "Use smaller buffers, or a pool with larger devices."
    }
    OutputTooLarge {
        verdicts: [User],
        retried: "no",
        meaning: "The outputs do not fit into a reply of 16 MiB.",
        advice: "Return large outputs through a blob store, return fewer, or split the job."
    }
    BlobMissing {
        verdicts: [Infrastructure],
        retried: "for about half a minute",
        meaning: "The blob store works, but an input blob is missing or its contents do not match its digest. After the last try \
                  the message is dead-lettered.",
        advice: "Store the array again (`gpufleet blobs put`), then `gpufleet retry ID`."
    }
    BlobUnavailable {
        verdicts: [Infrastructure],
        retried: "for about half an hour",
        meaning: "The worker cannot use its blob store, or no worker of the pool has one. After the last try the message is \
                  dead-lettered.",
        advice: "Check that producers and workers name the same folder and that it is mounted. Then submit the job again, or \
                  `gpufleet retry ID` if it is dead-lettered."
    }
    ExecutorLost {
        verdicts: [Infrastructure],
        retried: "yes, until `limits.attempts_max` executors are lost; a session is not",
        meaning: "The executor process or its device went away during the attempt, whose state is then `lost`. A session that the \
                  worker or its device ended has failed with this code.",
        advice: "Nothing: the next attempt follows. Start the command of a session again. If it happens often, read the worker's log."
    }
    AttemptsExhausted {
        verdicts: [Infrastructure],
        retried: "no",
        meaning: "The job lost `limits.attempts_max` executors, or the broker delivered it more than 15 times without an outcome. \
                  The message is dead-lettered.",
        advice: "Read `gpufleet show ID` and the worker's log, repair the cause, then `gpufleet retry ID`."
    }
    DeviceLost {
        verdicts: [],
        retried: "no",
        meaning: "Reserved. This release reports a lost device as `executor_lost` and never sends this code.",
        advice: "Treat it as `attempts_exhausted`."
    }
    Cancelled {
        verdicts: [User],
        retried: "no",
        meaning: "A person or a program cancelled the job. Its state is `cancelled`.",
        advice: "Submit the job again if that was a mistake."
    }
    ProgramFailed {
        verdicts: [User],
        retried: "no",
        meaning: "A host program or the program of a session exited with a code other than 0, a signal ended it, or it could not be \
                  started. The message says which.",
        advice: "Read the program's own output."
    }
    ClientLost {
        verdicts: [User],
        retried: "no",
        meaning: "The command that opened the session has gone, its connection broke, or it never connected to the worker. The \
                  worker has freed the session's memory.",
        advice: "Start the command again. If it never connected, open the worker's ports (`--session-listen`) to its machine."
    }
    IdleLimit {
        verdicts: [Timeout],
        retried: "no",
        meaning: "The session made no driver call and ran nothing for longer than its idle limit, so the worker took its memory \
                  back.",
        advice: "Raise the limit (`--idle-limit`), or end the program when it no longer needs the device."
    }
    Internal {
        verdicts: [Infrastructure],
        retried: "no",
        meaning: "The worker or the CUDA driver failed in a way that has no code of its own.",
        advice: "Submit the job again. If it fails again, read the log of the worker that `gpufleet show ID` names."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_listed_once_and_explained_in_sentences() {
        let mut names: Vec<_> = FailureCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FailureCode::ALL.len());
        for code in FailureCode::ALL {
            let Explanation { meaning, advice, .. } = code.explanation();
            assert!(meaning.ends_with('.') && advice.ends_with('.'), "{}", code.name());
        }
    }
}
