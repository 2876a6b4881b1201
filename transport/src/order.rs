//! Orders as messages: all go to one log, whoever gives them.

use gpufleet_schema::{MessageId, Order, encoding, topology};

use crate::{Message, Properties};

pub(crate) fn message(order: &Order, id: MessageId) -> Message {
    let body = encoding::encode_order(order).expect("an order has only strings and numbers");
    let properties = Properties {
        message_id: Some(id.to_string()),
        content_type: Some("application/json".to_owned()),
        kind: Some(topology::TYPE_ORDER.to_owned()),
        ..Properties::default()
    };
    Message { exchange: topology::CONTROL, routing_key: String::new(), body, properties, mandatory: true }
}
