//! Reads the events of a message one by one, so that an event that can't be read costs no other event.

use serde::Deserialize;

use super::{DecodeError, Encoding, messagepack, scan};
use crate::{Event, LaterEvent, text::recordable};

/// The events of one message.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// Those that can be read, with those whose kind a later release has added.
    pub events: Vec<Event>,
    pub unreadable: Vec<UnreadableEvent>,
}

/// An event of a known kind whose contents can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableEvent {
    /// The event as a message of its own.
    pub body: Vec<u8>,
    pub problem: String,
}

impl Events {
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let encoding = Encoding::MessagePack;
        if !encoding.is_list(body)? {
            return Err(encoding.malformed("expected a list of events"));
        }
        scan::check(body).map_err(|problem| encoding.malformed(problem))?;
        let items = scan::items(body);
        let mut found = Self { events: Vec::with_capacity(items.len()), unreadable: Vec::new() };
        for item in items {
            match messagepack::from_slice(item) {
                Ok(event) => found.events.push(event),
                Err(problem) => match later(item) {
                    Some(event) => found.events.push(Event::Later(event)),
                    None => {
                        let problem = recordable(&problem.to_string());
                        found.unreadable.push(UnreadableEvent { body: encoding.join(&[item]), problem });
                    }
                },
            }
        }
        Ok(found)
    }
}

/// The event, if its kind is none of this release. The kind is the only key of a map, or stands alone.
fn later(item: &[u8]) -> Option<LaterEvent> {
    let mut contents = item;
    if matches!(item.first()?, 0x80..=0x8f | 0xde | 0xdf) {
        scan::value(&mut contents).ok().filter(|values| *values == 2)?;
    }
    let kind = <&str>::deserialize(&mut messagepack::Decoder::new(contents)).ok()?;
    let is_known = Event::KINDS.contains(&kind);
    (!is_known).then(|| LaterEvent { kind: recordable(kind), encoded: item.to_vec() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::encoding::{decode_events, encode_event};

    fn decode(events: &Value) -> Events {
        Events::decode(&rmp_serde::to_vec_named(events).unwrap()).unwrap()
    }

    fn action() -> Value {
        json!({ "action": {
            "action_id": "01990f3e-5c1a-7b6e-9d8f-0a1b2c3d4e60", "at_ms": 1, "who": "anna", "action": "cancel", "target": "x",
        }})
    }

    #[test]
    fn the_kinds_are_those_that_can_be_read() {
        let refused = messagepack::from_slice::<Event>(&rmp_serde::to_vec("x").unwrap()).unwrap_err().to_string();
        let listed = Event::KINDS.map(|kind| format!("`{kind}`")).join(", ");
        assert!(refused.ends_with(&listed), "{refused}");
    }

    #[test]
    fn an_event_of_a_later_release_is_kept_beside_the_others() {
        let decoded = decode(&json!([{ "leased": { "at_ms": 7, "by": "w1" } }, action(), "paused"]));
        let [Event::Later(leased), Event::Action(_), Event::Later(paused)] = &decoded.events[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!((leased.kind.as_str(), paused.kind.as_str()), ("leased", "paused"));
        assert_eq!(leased.text(100), r#"{"leased":{"at_ms":7,"by":"w1"}}"#);
        let alone = encode_event(&decoded.events[0]).unwrap();
        assert_eq!(decode_events(&alone).unwrap(), decoded.events[..1]);
    }

    #[test]
    fn an_event_that_cannot_be_read_costs_no_other_event() {
        let mut bad = action();
        bad["action"]["at_ms"] = json!("soon");
        let decoded = decode(&json!([bad, action(), 7]));
        assert_eq!((decoded.events.len(), decoded.unreadable.len()), (1, 2), "{decoded:?}");
        let unreadable = &decoded.unreadable[0];
        assert!(unreadable.problem.contains("invalid type"), "{}", unreadable.problem);
        assert!(decode_events(&unreadable.body).unwrap_err().to_string().contains(&unreadable.problem));
    }
}
