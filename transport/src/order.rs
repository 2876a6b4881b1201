//! Orders as messages. All go to one log, through an exchange that identifies the speaker.

use gpufleet_schema::{
    MessageId, Order, encoding,
    topology::{self, Speaker},
};

use crate::{Message, Properties};

pub(crate) fn message(order: &Order, speaker: Speaker, user: &str, id: MessageId) -> Message {
    let body = encoding::encode_order(order).expect("an order has only strings and numbers");
    let properties = Properties {
        message_id: Some(id.to_string()),
        content_type: Some("application/json".to_owned()),
        kind: Some(topology::TYPE_ORDER.to_owned()),
        // A client's order applies to this user's own jobs. Other speakers need no user, and the broker may know theirs by another name.
        user_id: (speaker == Speaker::Client).then(|| user.to_owned()),
        ..Properties::default()
    };
    Message { exchange: speaker.control(), routing_key: String::new(), body, properties, mandatory: true }
}
