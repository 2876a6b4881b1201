//! Reports the actions of people who use a program that acts for them, such as the console.

use gpufleet_schema::{Action, ActionId, Event};
use gpufleet_transport::PublishError;

use crate::{Fleet, submission::now_ms};

impl Fleet {
    /// Reports an action of a person on jobs through this program, such as `cancel` or `replay`, so that `gpufleet actions` lists it. `who`
    /// is the person's name in the program, `target` the object of the action, such as a job id, and `from` the person's origin, such as a
    /// network address.
    ///
    /// Returns when the broker has the report on disk. If the future is cancelled, the action may or may not have been reported.
    pub async fn report_action(
        &self,
        who: &str,
        action: &str,
        target: &str,
        from: Option<&str>,
    ) -> Result<ActionId, PublishError> {
        let action_id = ActionId::new();
        let user_id = self.connection.user_id();
        let event = Action {
            action_id,
            at_ms: now_ms(),
            who: who.to_owned(),
            action: action.to_owned(),
            target: target.to_owned(),
            from: from.map(str::to_owned),
            reported_by: user_id.clone(),
        };
        self.connection.broker().report_alone(Event::Action(event), user_id).await?;
        Ok(action_id)
    }
}
