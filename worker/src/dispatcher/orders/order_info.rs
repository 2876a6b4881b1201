/// The time and sender of an order.
#[derive(Debug)]
pub(in crate::dispatcher) struct OrderInfo {
    pub(super) at_ms: i64,
    pub(super) by: Option<String>,
}

impl OrderInfo {
    /// Returns the cancellation reason that the job's owner sees.
    pub(in crate::dispatcher) fn reason(&self) -> String {
        match &self.by {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        }
    }
}
