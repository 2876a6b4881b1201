//! Explains why the broker refused a declaration, and what to do.

use gpufleet_schema::topology::{LEDGER_QUEUE, REPLIES, TASKS, UNCLAIMED_QUEUE};
use lapin::Error;

use crate::{
    DeclareError,
    link::{is_access_refused, reason_of},
};

/// The broker says: `PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'classic' but
/// current is 'quorum'`, sometimes with "the value … of type …" around the values, or `received none`.
pub(super) fn explain(what: String, error: &Error) -> DeclareError {
    let reason = reason_of(error);
    if is_access_refused(error) {
        return DeclareError::Forbidden { what, reason };
    }
    let Some((argument, wanted, found)) = parse(&reason) else { return DeclareError::Refused { what, reason } };
    let remedy = remedy(&what, vhost(&reason));
    DeclareError::Mismatch { what, argument, wanted, found, remedy }
}

/// The advice for a queue or an exchange that another version or configuration has declared.
fn remedy(what: &str, vhost: &str) -> String {
    if let Some(exchange) = what.strip_prefix("exchange ") {
        return format!(
            "another version declared it: stop all workers, clients and recorders, delete it (rabbitmqadmin --vhost={vhost} delete exchange name={exchange}) and start \
             a worker; the queues keep their messages"
        );
    }
    let queue = what.strip_prefix("queue ").unwrap_or(what);
    if queue.starts_with(&format!("{REPLIES}.")) {
        return format!(
            "every program with this client name must keep replies for the same time; or take its replies and delete it (rabbitmqctl --vhost {vhost} delete_queue {queue})"
        );
    }
    let first = match queue {
        LEDGER_QUEUE => "let the recorder of that version empty it",
        UNCLAIMED_QUEUE => "fetch the replies that you still need",
        queue if queue.starts_with(TASKS) => "let the workers of that version empty it",
        _ => "drain it or save its messages",
    };
    format!(
        "another version declared it: {first}, stop all workers, clients and recorders, delete it (rabbitmqctl --vhost {vhost} delete_queue {queue}) and start again"
    )
}

fn vhost(reason: &str) -> &str {
    let named = reason.split_once("in vhost '").and_then(|(_, rest)| rest.split_once('\''));
    named.map_or("/", |(vhost, _)| vhost)
}

fn parse(reason: &str) -> Option<(String, String, String)> {
    let (_, rest) = reason.split_once("inequivalent arg '")?;
    let (argument, rest) = rest.split_once('\'')?;
    let (_, rest) = rest.split_once("received ")?;
    let (wanted, found) = rest.split_once(" but current is ")?;
    Some((argument.to_owned(), plain(wanted), plain(found)))
}

/// The bare value: `3` for `the value '3' of type 'long'`.
fn plain(value: &str) -> String {
    let value = value.trim();
    value.split('\'').nth(1).unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_the_command_for_the_difference() {
        let reason = "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'gpufleet.v1.tasks' in vhost 'gpu': received 'topic' but current is 'direct'";
        assert_eq!(parse(reason).map(|(a, w, f)| [a, w, f].join("|")).as_deref(), Some("type|topic|direct"));
        let exchange = remedy("exchange gpufleet.v1.tasks", vhost(reason));
        assert!(exchange.contains("rabbitmqadmin --vhost=gpu delete exchange name=gpufleet.v1.tasks"), "{exchange}");
        let ledger = remedy("queue gpufleet.v1.ledger", "/");
        assert!(ledger.contains("let the recorder of that version empty it"), "{ledger}");
        assert!(ledger.contains("rabbitmqctl --vhost / delete_queue gpufleet.v1.ledger"), "{ledger}");
        assert!(remedy("queue gpufleet.v1.tasks.a.high", "/").contains("let the workers of that version empty it"));
    }

    #[test]
    fn a_refusal_names_the_argument_and_both_values() {
        let parsed = |reason| parse(reason).map(|(a, w, f)| [a, w, f].join("|"));
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'")
                .as_deref(),
            Some("x-queue-type|classic|quorum")
        );
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '5' of type 'signedint' but current is the value '6' of type 'signedint'")
                .as_deref(),
            Some("x-message-ttl|5|6")
        );
        assert_eq!(
            parsed("PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received none but current is the value '600000' of type 'unsignedint'")
                .as_deref(),
            Some("x-expires|none|600000")
        );
        assert_eq!(parsed("ACCESS_REFUSED - access to queue 'q' refused"), None);
    }
}
