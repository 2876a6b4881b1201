//! Decides whether a message may run in the pool of its queue, and for which user.
//!
//! A producer can get a message into any task queue. RabbitMQ checks the topic permission only for a message's first routing key, so a
//! producer can name another pool in a `CC` header, or let the broker carry the message there from an exchange or queue of the producer's
//! own. The worker therefore relies on what the broker itself writes: the queue, the exchange, the first key, the dead-letter history and
//! the validated user.

use std::collections::BTreeSet;

use gpufleet_schema::{
    ClientName,
    topology::{
        DEAD_QUEUE, FORWARDED, HEADER_USER, RETRY_LADDER, TASKS, TASKS_OPERATOR, parse_forwarded_key,
        parse_program_key, parse_session_key, parse_task_key,
    },
};
use gpufleet_transport::{Death, Delivery, Properties};

use super::task_queue::{Route, TaskQueue};
use crate::config::{Config, PoolSpec};

/// The rules by which a worker accepts messages into a pool.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    /// The worker's own user; `None` if the worker's messages carry no user ids.
    own_user: Option<String>,
    requires_user: bool,
    /// The users of the pool; `None` if every user may use it.
    users: Option<BTreeSet<String>>,
}

/// How a message got into its queue, according to the broker.
#[derive(Debug)]
struct Provenance<'a> {
    exchange: &'a str,
    routing_key: &'a str,
    has_more_keys: bool,
    deaths: &'a [Death],
}

impl Admission {
    pub(super) fn new(config: &Config, pool: &PoolSpec) -> Self {
        Self {
            own_user: config.user_id.then(|| config.broker.user().to_owned()),
            requires_user: config.require_user_id,
            users: pool.users.clone(),
        }
    }

    /// Returns the user who first published the task, as validated by the broker. Workers and operators republish messages with the
    /// original user in a header; from other users, the header is ignored. A worker whose own messages carry no users ignores all users,
    /// because it would lose a job's user when it publishes the job again.
    pub(super) fn user<'a>(&self, exchange: &str, properties: &'a Properties) -> Option<&'a str> {
        let own = self.own_user.as_deref()?;
        let vouched = properties.user_id.as_deref().filter(|user| !user.is_empty())?;
        let is_ours = own == vouched || exchange == TASKS_OPERATOR;
        let first = properties.header_text(HEADER_USER).filter(|_| is_ours);
        Some(first.unwrap_or(vouched))
    }

    /// Returns why the message must not run, or `None` if it may.
    pub(super) fn refusal(&self, delivery: &Delivery, queue: &TaskQueue, deaths: &[Death]) -> Option<String> {
        let provenance = Provenance {
            exchange: &delivery.exchange,
            routing_key: &delivery.routing_key,
            has_more_keys: delivery.has_more_keys(),
            deaths,
        };
        let user = self.user(&delivery.exchange, &delivery.properties);
        provenance.refusal(queue).or_else(|| self.refusal_of_user(user, queue))
    }

    fn refusal_of_user(&self, user: Option<&str>, queue: &TaskQueue) -> Option<String> {
        let pool = &queue.pool;
        match (user, &self.users) {
            (Some(user), Some(users)) if !users.contains(user) => {
                Some(format!("user {user} may not use pool {pool}; the worker's --pool {pool}:users=… lists its users"))
            }
            (None, Some(_)) => Some(format!("pool {pool} accepts only messages with the AMQP property user_id")),
            (None, None) if self.requires_user => {
                Some("this worker accepts only messages with the AMQP property user_id (--require-user-id)".to_owned())
            }
            _ => None,
        }
    }
}

impl Provenance<'_> {
    fn refusal(&self, queue: &TaskQueue) -> Option<String> {
        let pool = &queue.pool;
        let is_for_pool = match self.exchange {
            // Producers need permissions of their own for sessions and host programs, so no other key leads to them.
            TASKS if queue.route == Route::Session => parse_session_key(self.routing_key).as_ref() == Some(pool),
            TASKS if queue.route == Route::Program => parse_program_key(self.routing_key).as_ref() == Some(pool),
            TASKS_OPERATOR if matches!(queue.route, Route::Session | Route::Program) => false,
            TASKS | TASKS_OPERATOR => parse_task_key(self.routing_key).is_some_and(|(named, _)| named == *pool),
            FORWARDED => parse_forwarded_key(self.routing_key).is_some_and(|(named, ..)| named == *pool),
            // Only operators may publish to the default exchange, where the routing key is the queue's name.
            "" => true,
            other => {
                return Some(format!("the message came through exchange {other:?}, which is not one of gpufleet's"));
            }
        };
        if !is_for_pool {
            return Some(format!(
                "the message has routing key {:?}, which is not one of pool {pool}",
                self.routing_key
            ));
        }
        if self.has_more_keys {
            return Some("the message has a CC header; name one pool in the routing key".to_owned());
        }
        let foreign = self.deaths.iter().find(|death| !is_ours(&death.queue))?;
        Some(format!("the message was dead-lettered from queue {:?}, which is not one of gpufleet's", foreign.queue))
    }
}

/// Returns whether only workers and operators publish to the queue or move messages out of it.
fn is_ours(queue: &str) -> bool {
    let is_below = |prefix: &str| queue.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
    RETRY_LADDER.iter().any(|rung| rung.name == queue) || queue == DEAD_QUEUE || is_below(TASKS) || is_below(FORWARDED)
}

/// Returns why no reply may go to the client: users receive replies only under client names of their own. Without a validated user there is
/// no restriction.
pub(super) fn foreign_client(user: Option<&str>, client: &ClientName) -> Option<String> {
    let user = user.filter(|user| !client.belongs_to(user))?;
    Some(format!(
        "client {client} does not belong to user {user}; the names of a user's clients are {user}-WORD, without a dash in WORD"
    ))
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Priority, topology::REPLIES};

    use super::*;
    use crate::scheduler::PoolId;

    fn queue() -> TaskQueue {
        let (pool, priority) = ("team-a".parse().unwrap(), Priority::High);
        TaskQueue { index: 0, id: PoolId(0), pool, priority, route: Route::Pool, fixed_prefetch: None }
    }

    fn through<'a>(exchange: &'a str, routing_key: &'a str) -> Provenance<'a> {
        Provenance { exchange, routing_key, has_more_keys: false, deaths: &[] }
    }

    fn death(queue: &str) -> Death {
        Death { queue: queue.to_owned(), reason: "expired".to_owned() }
    }

    #[test]
    fn a_message_takes_the_ways_of_gpufleet_into_its_pool() {
        let class = "team-a.0123456789abcdef.high";
        let queue_of_class = format!("{FORWARDED}.{class}");
        let returned = [death(RETRY_LADDER[0].name), death(&queue_of_class)];
        for provenance in [
            through(TASKS, "team-a.high"),
            through(TASKS, "team-a.3.high"),
            through(TASKS_OPERATOR, "team-a.high"),
            through(FORWARDED, class),
            through("", "gpufleet.v1.tasks.team-a.high"),
            Provenance { deaths: &returned, ..through(TASKS, "team-a.high") },
        ] {
            assert_eq!(provenance.refusal(&queue()), None, "{provenance:?}");
        }
    }

    #[test]
    fn only_the_key_of_sessions_leads_to_a_session() {
        let sessions = TaskQueue { route: Route::Session, ..queue() };
        assert_eq!(through(TASKS, "team-a.session").refusal(&sessions), None);
        assert_eq!(through("", "gpufleet.v1.tasks.team-a.session").refusal(&sessions), None);
        for (provenance, queue) in [
            (through(TASKS, "team-a.normal"), &sessions),
            (through(TASKS_OPERATOR, "team-a.normal"), &sessions),
            (through(TASKS_OPERATOR, "team-a.session"), &sessions),
            (through(TASKS, "team-b.session"), &sessions),
            (through(TASKS, "team-a.session"), &queue()),
        ] {
            assert!(provenance.refusal(queue).unwrap().contains("routing key"), "{provenance:?}");
        }
    }

    #[test]
    fn only_the_key_of_host_programs_leads_to_one() {
        let programs = TaskQueue { route: Route::Program, ..queue() };
        assert_eq!(through(TASKS, "team-a.program").refusal(&programs), None);
        for (provenance, queue) in [
            (through(TASKS, "team-a.session"), &programs),
            (through(TASKS, "team-a.normal"), &programs),
            (through(TASKS_OPERATOR, "team-a.program"), &programs),
            (through(TASKS, "team-b.program"), &programs),
            (through(TASKS, "team-a.program"), &queue()),
        ] {
            assert!(provenance.refusal(queue).unwrap().contains("routing key"), "{provenance:?}");
        }
    }

    #[test]
    fn a_message_that_took_another_way_is_refused_with_the_reason() {
        let own_exchange = format!("{REPLIES}.mallory-x");
        let own_queue = [death(RETRY_LADDER[0].name), death("gpufleet.v1.replies.mallory-x")];
        let forged = [death("")];
        for (provenance, part) in [
            (through(TASKS, "team-b.high"), "\"team-b.high\", which is not one of pool team-a"),
            (through(TASKS, "nonsense"), "routing key"),
            (through(FORWARDED, "team-b.0123456789abcdef.high"), "routing key"),
            (Provenance { has_more_keys: true, ..through(TASKS, "team-a.high") }, "CC header"),
            (through(&own_exchange, "team-a.high"), "exchange \"gpufleet.v1.replies.mallory-x\""),
            (
                Provenance { deaths: &own_queue, ..through(TASKS, "team-a.high") },
                "queue \"gpufleet.v1.replies.mallory-x\"",
            ),
            (Provenance { deaths: &forged, ..through(TASKS, "team-a.high") }, "dead-lettered from queue \"\""),
        ] {
            let reason = provenance.refusal(&queue()).unwrap_or_else(|| panic!("{provenance:?}"));
            assert!(reason.contains(part), "{provenance:?}: {reason}");
        }
    }

    fn admission(requires_user: bool, users: Option<&[&str]>) -> Admission {
        let users = users.map(|users| users.iter().map(ToString::to_string).collect());
        Admission { own_user: Some("walt".to_owned()), requires_user, users }
    }

    #[test]
    fn a_pool_with_users_accepts_no_others() {
        for (requires_user, users, user, accepted) in [
            (false, None, None, true),
            (false, None, Some("anna"), true),
            (true, None, None, false),
            (true, None, Some("anna"), true),
            (false, Some(&["anna", "bert"][..]), Some("bert"), true),
            (false, Some(&["anna", "bert"][..]), Some("carl"), false),
            (false, Some(&["anna", "bert"][..]), None, false),
        ] {
            let refusal = admission(requires_user, users).refusal_of_user(user, &queue());
            assert_eq!(refusal.is_none(), accepted, "{requires_user} {users:?} {user:?}: {refusal:?}");
        }
    }

    #[test]
    fn the_user_in_a_header_counts_only_from_a_worker_or_an_operator() {
        let admission = admission(false, None);
        let from = |user_id: Option<&str>, exchange: &str| {
            let headers = [(HEADER_USER.to_owned(), "anna".into())].into();
            let properties = Properties { user_id: user_id.map(str::to_owned), headers, ..Properties::default() };
            admission.user(exchange, &properties).map(str::to_owned)
        };
        assert_eq!(from(Some("walt"), TASKS).as_deref(), Some("anna"));
        assert_eq!(from(Some("olga"), TASKS_OPERATOR).as_deref(), Some("anna"));
        assert_eq!(from(Some("mallory"), TASKS).as_deref(), Some("mallory"));
        assert_eq!(from(None, TASKS_OPERATOR), None);
        assert_eq!(from(None, TASKS), None);
    }

    #[test]
    fn a_user_gets_replies_under_its_own_names() {
        let client: ClientName = "anna-x".parse().unwrap();
        assert_eq!((foreign_client(None, &client), foreign_client(Some("anna"), &client)), (None, None));
        assert!(foreign_client(Some("bert"), &client).unwrap().contains("bert-WORD"));
    }
}
