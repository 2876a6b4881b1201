//! Reports of what people did through a program that acts for them.

use gpufleet_schema::{Action, ActionId, Event};
use gpufleet_transport::PublishError;

use crate::{Fleet, submission::now_ms};

impl Fleet {
    /// Reports what a person did to jobs through this program, such as `cancel` or `replay`, for `gpufleet actions`. `who` is the person as the
    /// program knows them, `target` what it was done to, such as the id of a job, and `from` where the person came from, such as an address.
    ///
    /// Returns when the broker has the report on disk. If the future is cancelled, it may or may not have been reported.
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
