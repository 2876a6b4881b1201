//! Actions of viewers: cancel jobs, and replay or discard dead letters. Each action leaves a record in the log, and one for each job or letter in
//! the ledger.

mod audit;
mod cancel;
mod dead;
pub(crate) mod letters;
mod targets;

pub(crate) use self::{
    cancel::cancel,
    dead::{discard, list, replay},
};
