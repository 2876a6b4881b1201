//! Checks that the sender of a batch may report its events. The exchange identifies the kind of sender, because RabbitMQ's permissions
//! decide which users may publish to it. A redelivered message keeps its exchange. A message that an operator moves by hand comes through the
//! default exchange.

use gpufleet_schema::{Event, topology::Speaker};

/// Refuses a whole batch with the reason, even if only one event is at fault. A gpufleet client publishes no such batch.
pub(super) fn check(exchange: &str, user_id: Option<&str>, events: &[Event]) -> Result<(), String> {
    match Speaker::of_events(exchange) {
        Some(Speaker::Worker | Speaker::Operator) => Ok(()),
        Some(Speaker::Client) => events.iter().try_for_each(|event| check_client(user_id, event)),
        None => Err(format!("events came through exchange {exchange:?}, which carries none")),
    }
}

fn check_client(user_id: Option<&str>, event: &Event) -> Result<(), String> {
    if let Event::Action(action) = event {
        return match (action.reported_by.as_deref(), user_id) {
            (Some(claimed), Some(user_id)) if claimed == user_id => Ok(()),
            (Some(_), Some(user_id)) => Err(format!("user {user_id} reported an action as another user")),
            _ => Err("an action was reported without the broker's user".to_owned()),
        };
    }
    let Event::Submitted(submitted) = event else {
        return Err(format!("user {} reported an event that only workers may report", user_id.unwrap_or("(unknown)")));
    };
    match submitted.job.user_id.as_deref() {
        claimed @ Some(_) if claimed != user_id => {
            Err(format!("user {} reported a job of another user", user_id.unwrap_or("(unknown)")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{
        Action, ActionId, JobId, JobInfo, PoolName, Priority, Submitted, WorkerSeen,
        topology::{EVENTS_CLIENT, EVENTS_WORKER},
    };

    use super::*;

    fn submitted(user_id: Option<&str>) -> Event {
        let job = JobInfo {
            job_id: JobId::new(),
            pool: PoolName::default(),
            priority: Priority::Normal,
            name: None,
            labels: [].into(),
            program: "catalog".to_owned(),
            kernel: "saxpy".to_owned(),
            input_bytes: 0,
            client: None,
            submitted_ms: None,
            user_id: user_id.map(str::to_owned),
            blobs: Vec::new(),
            traceparent: None,
        };
        Event::Submitted(Submitted { job, at_ms: 0 })
    }

    fn action(reported_by: Option<&str>) -> Event {
        Event::Action(Action {
            action_id: ActionId::new(),
            at_ms: 0,
            who: "carla".to_owned(),
            action: "cancel".to_owned(),
            target: "a job".to_owned(),
            from: None,
            reported_by: reported_by.map(str::to_owned),
        })
    }

    fn seen() -> Event {
        Event::WorkerSeen(WorkerSeen {
            worker: "w".parse().unwrap(),
            at_ms: 0,
            host: String::new(),
            pid: 0,
            revision: String::new(),
            pools: Vec::new(),
            devices: Vec::new(),
            jobs_running: 0,
            leaving: false,
        })
    }

    #[test]
    fn a_client_may_report_only_its_own_submissions() {
        let of_anna = |event: Event| check(EVENTS_CLIENT, Some("anna"), &[submitted(None), event]);
        assert_eq!(of_anna(submitted(None)), Ok(()));
        assert_eq!(of_anna(submitted(Some("anna"))), Ok(()));
        assert_eq!(of_anna(action(Some("anna"))), Ok(()));
        assert!(of_anna(action(Some("bert"))).unwrap_err().contains("as another user"));
        assert!(of_anna(action(None)).unwrap_err().contains("without the broker's user"));
        assert!(check(EVENTS_CLIENT, None, &[action(None)]).is_err());
        assert!(of_anna(submitted(Some("bert"))).unwrap_err().contains("another user"));
        assert!(of_anna(seen()).unwrap_err().contains("only workers"));
        assert!(check(EVENTS_CLIENT, None, &[submitted(Some("anna"))]).is_err(), "the broker has verified no user");
    }

    #[test]
    fn workers_and_operators_may_report_everything_and_unknown_senders_nothing() {
        for exchange in [EVENTS_WORKER, ""] {
            assert_eq!(check(exchange, None, &[submitted(None), seen()]), Ok(()));
        }
        assert!(check("gpufleet.v1.events", Some("anna"), &[submitted(None)]).is_err());
    }
}
