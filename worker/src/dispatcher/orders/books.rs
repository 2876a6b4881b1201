//! Cancellations by sender: an operator's order applies to any job, a client's only to jobs of the same user. A client's order never takes
//! precedence over an operator's.

use std::{collections::HashMap, sync::Arc, time::Instant};

use gpufleet_schema::Selection;
use tracing::warn;

use super::{super::Subject, cancelled::Cancelled, order_info::OrderInfo};

/// Memory for one generation of a user's orders, in bytes: about 65,000 jobs, or a thousand selections by labels.
const USER_BYTES_MAX: usize = 4 << 20;
/// Memory for one generation of operators' orders, in bytes: more than the control stream can hold.
const OPERATORS_BYTES_MAX: usize = 128 << 20;

/// Cancellations by operators and by each user. The number of users is bounded by that of the broker.
#[derive(Debug)]
pub(super) struct Books {
    operators: Cancelled,
    users: HashMap<String, Cancelled>,
}

impl Books {
    pub(super) fn new(now: Instant) -> Self {
        Self { operators: Cancelled::new(now, OPERATORS_BYTES_MAX), users: HashMap::new() }
    }

    /// Stores an order of `user`, or of an operator if that is `None`. Returns whether it selects jobs that earlier orders did not.
    pub(super) fn add(
        &mut self,
        selection: Selection,
        user: Option<&str>,
        order: &Arc<OrderInfo>,
        now: Instant,
    ) -> bool {
        let book = match user {
            None => &mut self.operators,
            Some(user) => self.users.entry(user.to_owned()).or_insert_with(|| Cancelled::new(now, USER_BYTES_MAX)),
        };
        let added = book.add(selection, order, now);
        if added.forgot {
            warn!(user, "more was cancelled within days than a worker remembers; it forgets the oldest cancellations");
        }
        added.is_new
    }

    /// Returns the order that cancelled a job.
    pub(super) fn find(&mut self, subject: &Subject, now: Instant) -> Option<Arc<OrderInfo>> {
        let Subject { job, labels, submitted_ms, user } = subject;
        let by_operator = self.operators.find(*job, labels, *submitted_ms, now);
        by_operator.or_else(|| self.users.get_mut(user.as_ref()?)?.find(*job, labels, *submitted_ms, now))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpufleet_schema::JobId;

    use super::*;

    fn only(job: JobId) -> Selection {
        Selection { jobs: vec![job], ..Selection::default() }
    }

    fn order(by: &str) -> Arc<OrderInfo> {
        Arc::new(OrderInfo { at_ms: 1, by: Some(by.to_owned()) })
    }

    #[test]
    fn a_clients_order_means_the_jobs_of_its_user_alone() {
        let (now, job) = (Instant::now(), JobId::new());
        let mut books = Books::new(now);
        assert!(books.add(only(job), Some("eve"), &order("eve"), now));
        let by = |books: &mut Books, user: Option<&str>| {
            let user = user.map(str::to_owned);
            let found = books.find(&Subject { job, labels: BTreeMap::new(), submitted_ms: 0, user }, now);
            found.and_then(|order| order.by.clone())
        };
        assert_eq!(by(&mut books, Some("anna")), None);
        assert_eq!(by(&mut books, None), None, "nobody vouches for whose it is");
        assert_eq!(by(&mut books, Some("eve")).as_deref(), Some("eve"));
        assert!(
            books.add(only(job), None, &order("operator"), now),
            "an earlier order of another user does not affect it"
        );
        for user in [Some("anna"), Some("eve"), None] {
            assert_eq!(by(&mut books, user).as_deref(), Some("operator"));
        }
    }
}
