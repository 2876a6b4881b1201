//! The errors of a catalog task.

use gpufleet_schema::{Dtype, bounds::BUFFER_BYTES_MAX, number::DoesNotFit};

use crate::expression::EvaluateError;

/// An invalid field of a catalog task, and why it is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ResolveError {
    field: String,
    #[source]
    problem: Box<Problem>,
}

/// The reason why a field is invalid. The author of the task reads these texts, so each says what to change.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error("the catalog has no kernel {kernel:?}{}", did_you_mean(.closest))]
    UnknownKernel { kernel: String, closest: Option<String> },
    #[error("a catalog kernel defines its own launches; remove this field")]
    LaunchesGiven,
    #[error("missing; the signature of the kernel is {signature}")]
    Missing { signature: String },
    #[error("the kernel has no such {what}{}; its signature is {signature}", did_you_mean(.closest))]
    Surplus { what: &'static str, closest: Option<String>, signature: String },
    #[error("given twice")]
    Twice,
    #[error(transparent)]
    ArgumentDoesNotFit(#[from] DoesNotFit),
    #[error("{got}, but the kernel requires {want}")]
    WrongDtype { want: Dtype, got: Dtype },
    #[error("{got:?} has {} dimensions, but the kernel requires {want}", .got.len())]
    WrongRank { want: String, got: Vec<u64> },
    #[error("{got:?} sets {symbol} to {value}, but {other} sets it to {other_value}")]
    Disagreement { symbol: String, value: u64, other: String, other_value: u64, got: Vec<u64> },
    #[error("{got:?} must be {want:?}, computed from {rule}")]
    WrongExtent { want: Vec<u64>, got: Vec<u64>, rule: String },
    #[error("{got:?} has no elements")]
    Empty { got: Vec<u64> },
    #[error("an output starts as zeros; remove its data")]
    OutputHasContents,
    #[error("the kernel writes to this buffer, so jobs can't share it; remove this")]
    SharesWhatItWrites,
    #[error("{value} is {got}, but must be {relation} {want}: {because}")]
    Constraint { value: String, got: u64, relation: &'static str, want: u64, because: String },
    #[error("{form} would be {shape:?}, which exceeds {BUFFER_BYTES_MAX} bytes")]
    TooLarge { form: String, shape: Vec<u64> },
    #[error("{0}")]
    NoValue(#[from] EvaluateError),
    #[error("{what} {expression} would be {value}, which is outside {min} to {max}")]
    Launch { what: &'static str, expression: String, value: u64, min: u64, max: u64 },
    #[error("listed twice")]
    OutputTwice,
    #[error("the kernel has no output {name:?}{}; its signature is {signature}", did_you_mean(.closest))]
    NoOutput { name: String, closest: Option<String>, signature: String },
}

impl ResolveError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<Problem>) -> Self {
        Self { field: field.into(), problem: Box::new(problem.into()) }
    }

    /// Returns the invalid field of the task, such as `buffers.x.shape` or `arguments.a`.
    pub fn field(&self) -> &str {
        &self.field
    }

    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

fn did_you_mean(closest: &Option<String>) -> String {
    closest.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}
