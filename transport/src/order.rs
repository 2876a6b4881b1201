//! Orders as messages. Each goes to a stream that all workers read, through an exchange that identifies the speaker.

use gpufleet_schema::{
    InvalidOrder, MessageId, Order,
    bounds::ORDER_BYTES_MAX,
    encoding,
    topology::{self, Speaker},
};

use crate::{Message, Properties, PublishError};

/// Turns an order into a message. An order that workers would refuse is an error.
pub(crate) fn message(order: &Order, speaker: Speaker, user: &str, id: MessageId) -> Result<Message, PublishError> {
    order.check().map_err(PublishError::Order)?;
    let body = encoding::encode_order(order).expect("an order has only strings and numbers");
    if body.len() > ORDER_BYTES_MAX {
        return Err(PublishError::Order(InvalidOrder::TooLarge { bytes: body.len() }));
    }
    let properties = Properties {
        message_id: Some(id.to_string()),
        content_type: Some("application/json".to_owned()),
        kind: Some(topology::TYPE_ORDER.to_owned()),
        // A client's order applies to this user's own jobs. Other speakers need no user, and the broker may know theirs by another name.
        user_id: (speaker == Speaker::Client).then(|| user.to_owned()),
        ..Properties::default()
    };
    Ok(Message { exchange: speaker.control(), routing_key: String::new(), body, properties })
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{
        Command, JobId, Selection,
        bounds::{LABELS_MAX, ORDER_JOBS_MAX, TEXT_BYTES_MAX},
    };

    use super::*;

    fn published(jobs: usize, labels: usize, label_bytes: usize) -> Result<(), PublishError> {
        let selection = Selection {
            jobs: (0..jobs).map(|_| JobId::new()).collect(),
            labels: (0..labels).map(|label| (label.to_string(), "x".repeat(label_bytes))).collect(),
        };
        let order = Order::new(i64::MAX, Some("x".repeat(TEXT_BYTES_MAX)), Command::Cancel(selection));
        message(&order, Speaker::Client, "anna", MessageId::new()).map(drop)
    }

    #[test]
    fn an_order_that_workers_would_refuse_is_an_error_of_its_sender() {
        assert_eq!(published(ORDER_JOBS_MAX, LABELS_MAX, TEXT_BYTES_MAX), Ok(()));
        let refusal = |jobs, labels, bytes| published(jobs, labels, bytes).unwrap_err().to_string();
        let many = refusal(ORDER_JOBS_MAX + 1, 0, 0);
        assert_eq!(many, "failed to publish: the order names more than 1000 jobs; give several orders");
        assert!(refusal(0, LABELS_MAX + 1, 1).contains("more than 32 labels"));
        assert!(refusal(0, 1, ORDER_BYTES_MAX).contains("the maximum is 65536"));
    }
}
