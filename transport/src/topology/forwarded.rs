//! The queues in which forwarded jobs wait for workers with a device of the required class.
//!
//! A job that waits there too long returns to its task queue. Each pool and class has three queues, like the pool itself: the order in
//! which the broker sends jobs implements their priority, and a queue has only one order.

use gpufleet_schema::{ClassKey, PoolName, Priority, topology as names};
use lapin::{
    ExchangeKind,
    types::{AMQPValue, FieldTable},
};

use super::{DELIVERY_LIMIT, Step, bound, exchange, quorum, text};

pub(super) fn steps(pool: &PoolName, class: ClassKey) -> Vec<Step> {
    // Topic: the broker checks routing keys against a user's permissions on topic exchanges alone.
    let mut steps = vec![exchange(names::FORWARDED, ExchangeKind::Topic, [])];
    for priority in Priority::ALL {
        let queue = names::forwarded_queue(pool, class, priority);
        let key = names::forwarded_key(pool, class, priority);
        steps.extend(bound(queue, arguments(pool, priority), names::FORWARDED, key));
    }
    steps
}

fn arguments(pool: &PoolName, priority: Priority) -> FieldTable {
    quorum([
        ("x-message-ttl", AMQPValue::LongUInt(names::FORWARDED_TTL_MS)),
        ("x-dead-letter-exchange", text(names::TASKS)),
        ("x-dead-letter-routing-key", text(&names::task_key(pool, priority))),
        ("x-delivery-limit", AMQPValue::LongInt(DELIVERY_LIMIT)),
        // Dead-lettering at least once requires reject-publish.
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-strategy", text("at-least-once")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Action;

    #[test]
    fn expired_forwarded_messages_return_to_the_task_queue_of_their_pool_and_priority() {
        let (pool, class) = ("team-a".parse().unwrap(), "0123456789abcdef".parse().unwrap());
        let steps = steps(&pool, class);
        let queues: Vec<_> = steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Queue { name, arguments } => Some((name, arguments.inner())),
                _ => None,
            })
            .collect();
        assert_eq!(queues.len(), Priority::ALL.len());
        for ((name, arguments), priority) in queues.into_iter().zip(Priority::ALL) {
            assert_eq!(*name, names::forwarded_queue(&pool, class, priority));
            assert_eq!(arguments.get("x-dead-letter-exchange"), Some(&text(names::TASKS)));
            let key = names::task_key(&pool, priority);
            assert_eq!(arguments.get("x-dead-letter-routing-key"), Some(&text(&key)));
            assert_eq!(arguments.get("x-dead-letter-strategy"), Some(&text("at-least-once")));
        }
    }
}
