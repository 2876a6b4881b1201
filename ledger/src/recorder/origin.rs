//! Checks that the sender of a batch may report its events. The exchange identifies the kind of sender, because RabbitMQ's permissions
//! determine which users may publish to it, and with which routing keys. A redelivered message keeps both. A message that an operator moves
//! by hand arrives through the default exchange.

use gpufleet_schema::{
    Event, Submitted,
    bounds::{CLIENT_EVENTS_BYTES_MAX, MESSAGE_BYTES_MAX},
    event::Action,
    topology::{EVENTS_ACTION_KEY, Speaker, submissions_key},
};

/// Returns the maximum size of a message from this exchange. Messages that arrive through the default exchange were moved by an operator,
/// so they may be as large as those of workers.
pub(super) fn bytes_max(exchange: &str) -> usize {
    match Speaker::of_events(exchange) {
        Some(Speaker::Worker | Speaker::Operator) => MESSAGE_BYTES_MAX,
        Some(Speaker::Client) | None => CLIENT_EVENTS_BYTES_MAX,
    }
}

/// The origin of a message, according to the broker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) exchange: &'a str,
    pub(super) routing_key: &'a str,
    pub(super) user_id: Option<&'a str>,
}

impl Origin<'_> {
    /// Returns the reason for refusing an oversized message before its events are decoded.
    pub(super) fn too_large(self, bytes: usize) -> String {
        let max = bytes_max(self.exchange);
        format!(
            "user {} sent events of {bytes} bytes through exchange {:?}; the maximum is {max}",
            self.user(),
            self.exchange
        )
    }

    /// Refuses a whole batch if one of its events is not allowed, because no gpufleet client publishes such a batch. Sets the user of
    /// submissions to the one that the broker validated.
    pub(super) fn check(self, events: &mut [Event]) -> Result<(), String> {
        match Speaker::of_events(self.exchange) {
            Some(Speaker::Worker | Speaker::Operator) => Ok(()),
            Some(Speaker::Client) => events.iter_mut().try_for_each(|event| self.check_client(event)),
            None => Err(format!("events came through exchange {:?}, which carries none", self.exchange)),
        }
    }

    fn check_client(self, event: &mut Event) -> Result<(), String> {
        match event {
            Event::Submitted(submitted) => self.check_submission(submitted),
            Event::Action(action) => self.check_action(action),
            // The recorder stores only its kind and its text.
            Event::Later(_) => Ok(()),
            Event::Started(_) | Event::AttemptFinished(_) | Event::WorkerSeen(_) | Event::SessionProgress(_) => {
                Err(format!("user {} reported an event that only workers may report", self.user()))
            }
        }
    }

    fn check_submission(self, Submitted { job, .. }: &mut Submitted) -> Result<(), String> {
        if job.user_id.is_some() && job.user_id.as_deref() != self.user_id {
            return Err(format!("user {} reported a job of another user", self.user()));
        }
        if self.routing_key != submissions_key(&job.pool) {
            let (user, pool, key) = (self.user(), &job.pool, self.routing_key);
            return Err(format!("user {user} reported a job of pool {pool} with routing key {key:?}"));
        }
        job.user_id = self.user_id.map(str::to_owned);
        Ok(())
    }

    fn check_action(self, action: &Action) -> Result<(), String> {
        match (action.reported_by.as_deref(), self.user_id) {
            (Some(claimed), Some(user_id)) if claimed == user_id => {}
            (Some(_), Some(user_id)) => return Err(format!("user {user_id} reported an action as another user")),
            _ => return Err("an action was reported without the broker's user".to_owned()),
        }
        if self.routing_key != EVENTS_ACTION_KEY {
            return Err(format!("user {} reported an action with routing key {:?}", self.user(), self.routing_key));
        }
        Ok(())
    }

    fn user(&self) -> &str {
        self.user_id.unwrap_or("(unknown)")
    }
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{
        Action, ActionId, JobId, JobInfo, PoolName, Submitted, WorkerSeen,
        topology::{EVENTS_CLIENT, EVENTS_KEY, EVENTS_WORKER},
    };

    use super::*;

    fn submitted(user_id: Option<&str>) -> Event {
        let job = JobInfo { user_id: user_id.map(str::to_owned), ..JobInfo::new(JobId::new(), "saxpy") };
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
            sessions: None,
            programs: None,
            leaving: false,
        })
    }

    /// Checks events of a client with the key of their kind.
    fn of_client(user_id: Option<&str>, events: &mut [Event]) -> Result<(), String> {
        let routing_key = match events.last() {
            Some(Event::Action(_)) => EVENTS_ACTION_KEY.to_owned(),
            _ => submissions_key(&PoolName::default()),
        };
        Origin { exchange: EVENTS_CLIENT, routing_key: &routing_key, user_id }.check(events)
    }

    #[test]
    fn a_client_may_report_only_its_own_submissions() {
        let of_anna = |event: Event| of_client(Some("anna"), &mut [event]);
        assert_eq!(of_anna(submitted(None)), Ok(()));
        assert_eq!(of_anna(submitted(Some("anna"))), Ok(()));
        assert_eq!(of_anna(action(Some("anna"))), Ok(()));
        assert!(of_anna(action(Some("bert"))).unwrap_err().contains("as another user"));
        assert!(of_anna(action(None)).unwrap_err().contains("without the broker's user"));
        assert!(of_client(None, &mut [action(None)]).is_err());
        assert!(of_anna(submitted(Some("bert"))).unwrap_err().contains("another user"));
        assert!(of_anna(seen()).unwrap_err().contains("only workers"));
        assert!(of_client(None, &mut [submitted(Some("anna"))]).is_err(), "the broker has verified no user");
    }

    #[test]
    fn a_submission_gets_the_user_whom_the_broker_validated() {
        let mut events = [submitted(None)];
        of_client(Some("anna"), &mut events).unwrap();
        let [Event::Submitted(submitted)] = &events else { panic!("{events:?}") };
        assert_eq!(submitted.job.user_id.as_deref(), Some("anna"));
    }

    #[test]
    fn the_routing_key_confines_submissions_to_a_pool_and_actions_to_operators() {
        let with_key = |routing_key: &str, event: Event| {
            Origin { exchange: EVENTS_CLIENT, routing_key, user_id: Some("anna") }.check(&mut [event])
        };
        let team_b = submissions_key(&"team-b".parse().unwrap());
        for key in [team_b.as_str(), EVENTS_KEY, EVENTS_ACTION_KEY] {
            assert!(with_key(key, submitted(None)).unwrap_err().contains("pool default"), "{key}");
        }
        let of_pool = submissions_key(&PoolName::default());
        assert!(with_key(&of_pool, action(Some("anna"))).unwrap_err().contains("routing key"));
    }

    #[test]
    fn workers_and_operators_may_report_everything_and_unknown_senders_nothing() {
        for exchange in [EVENTS_WORKER, ""] {
            let origin = Origin { exchange, routing_key: EVENTS_KEY, user_id: None };
            assert_eq!(origin.check(&mut [submitted(None), seen()]), Ok(()));
        }
        let unknown = Origin { exchange: "gpufleet.v1.events", routing_key: EVENTS_KEY, user_id: Some("anna") };
        assert!(unknown.check(&mut [submitted(None)]).is_err());
    }
}
