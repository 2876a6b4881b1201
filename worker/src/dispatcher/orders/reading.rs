//! Tracks how far the control stream has been read, by the marks that this worker writes into it.

use gpufleet_schema::MessageId;

use super::order_info::OrderInfo;

/// The reading of the stream, from its first order on.
#[derive(Debug)]
pub(super) struct Reading {
    /// The mark of this process's start. Drain orders before it were for an earlier worker of the same name.
    first: MessageId,
    /// The mark of this process's start or of the last interruption. All earlier orders are before it in the stream.
    mark: MessageId,
    since_start: bool,
    drain: Option<OrderInfo>,
}

impl Reading {
    pub(super) fn new(first: MessageId) -> Self {
        Self { first, mark: first, since_start: false, drain: None }
    }

    /// Continues after an interruption, up to this mark.
    pub(super) fn read_on(&mut self, mark: MessageId) {
        self.mark = mark;
    }

    /// Records that reading starts at the beginning again, with the orders from before this worker's start.
    pub(super) fn start_over(&mut self) {
        self.since_start = false;
        self.drain = None;
    }

    /// Records a drain order for this worker's name.
    pub(super) fn drain(&mut self, order: OrderInfo) {
        self.drain = Some(order);
    }

    /// Records a mark, which may be another worker's. Returns whether every order before this worker's last mark is
    /// known.
    pub(super) fn pass(&mut self, mark: MessageId) -> bool {
        // The mark may be in the stream twice.
        if mark == self.first && !self.since_start {
            self.since_start = true;
            self.drain = None;
        }
        let is_last = mark == self.mark;
        // If the first mark is no longer in the stream, neither are the orders from before it.
        self.since_start |= is_last;
        is_last
    }

    /// Returns the drain order for this worker since its start, if any.
    pub(super) fn drained(&self) -> Option<&OrderInfo> {
        self.drain.as_ref().filter(|_| self.since_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: OrderInfo = OrderInfo { at_ms: 0, by: None };

    /// Creates a reading, and returns it with its first mark.
    fn began() -> (Reading, MessageId) {
        let first = MessageId::new();
        (Reading::new(first), first)
    }

    fn read_on(reading: &mut Reading) -> MessageId {
        let mark = MessageId::new();
        reading.read_on(mark);
        mark
    }

    #[test]
    fn only_a_drain_order_behind_the_first_mark_counts() {
        let (mut reading, first) = began();
        reading.drain(ORDER);
        assert!(reading.drained().is_none());
        assert!(!reading.pass(MessageId::new()), "another worker's");
        assert!(reading.pass(first));
        assert!(reading.drained().is_none(), "it was for an earlier worker");
        reading.drain(ORDER);
        assert!(reading.drained().is_some());
        assert!(reading.pass(first), "written twice");
        assert!(reading.drained().is_some());
    }

    #[test]
    fn after_an_interruption_the_old_orders_stay_known() {
        let (mut reading, first) = began();
        assert!(reading.pass(first));
        let second = read_on(&mut reading);
        reading.drain(ORDER);
        assert!(reading.drained().is_some(), "at once");
        assert!(reading.pass(second));
        assert!(reading.drained().is_some());
    }

    #[test]
    fn reading_from_the_beginning_again_finds_the_old_orders_in_the_old_places() {
        let (mut reading, first) = began();
        reading.pass(first);
        let second = read_on(&mut reading);
        reading.start_over();
        reading.drain(ORDER);
        assert!(!reading.pass(first), "more was ordered since");
        assert!(reading.drained().is_none());
        assert!(reading.pass(second));
        assert!(reading.drained().is_none());
    }

    #[test]
    fn in_a_log_that_has_forgotten_the_first_mark_every_drain_order_is_of_later() {
        let (mut reading, _) = began();
        let second = read_on(&mut reading);
        reading.start_over();
        reading.drain(ORDER);
        assert!(reading.drained().is_none(), "the first mark may be yet to come");
        assert!(reading.pass(second));
        assert!(reading.drained().is_some());
    }
}
