//! What all handlers share.

use std::{sync::Arc, time::Duration};

use axum::extract::State;

use super::{answer::Answered, cached::Cached};
use crate::{Ledger, Overview, Replication};

pub(super) struct Api {
    pub(super) ledger: Ledger,
    pub(super) lag_max: Duration,
    pub(super) replication: Cached<Answered<Replication>>,
    pub(super) overview: Cached<Answered<Overview>>,
}

/// The state of a handler.
pub(super) type Shared = State<Arc<Api>>;
