//! Attends to an open session until Python ends it: reads its events, and learns how it ended.

use std::{sync::mpsc::Sender, time::Duration};

use gpufleet::{
    JobError,
    schema::{SessionOffer, SessionUse},
    session::{Lease, LeaseEnd, LeaseEvent, Rejected, Relay, SessionHandle, Standing},
};
use tokio::{
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::timeout,
};

use crate::ended::Ended;

/// The time for the job's reply after the end of its session.
pub const REPLY_WITHIN: Duration = Duration::from_secs(5);

/// An open session, with the relay for this process's driver calls.
#[derive(Debug)]
pub struct Open {
    pub handle: SessionHandle,
    pub offer: SessionOffer,
    pub lease: Lease,
    pub relay: Relay,
    pub rejections: UnboundedReceiver<Rejected>,
}

/// Something to tell the user.
#[derive(Debug)]
pub enum News {
    Line(String),
    /// The session has ended, and Python did not end it.
    Ended(String),
}

/// A session that has ended.
#[derive(Debug)]
pub struct SessionEnd {
    /// The session ended before Python ended it.
    pub is_early: bool,
    /// Why the session ended, unless Python ended it.
    pub reason: Option<String>,
    pub used: SessionUse,
    /// How the job failed. `None` if it succeeded, or if its reply did not come in time.
    pub failed: Option<Ended>,
}

/// Reports events until Python gives the exit code, and then waits for the session's own end. Without a code, because the interpreter has
/// dropped the session, the worker hears that the program succeeded.
pub async fn attend(mut session: Open, mut code: oneshot::Receiver<i32>, news: Sender<News>) -> SessionEnd {
    let mut early = None;
    let mut has_outcome = false;
    let code = loop {
        tokio::select! {
            event = session.lease.next(), if early.is_none() => early = told(event, &news),
            offer = session.handle.next_offer(), if !has_outcome => match offer {
                // The broker has lost the worker of this attempt. Meanwhile events of the session go on.
                Some(offer) => {
                    let standing = Standing::of(early.as_ref(), None, None);
                    tokio::spawn(async move { standing.report(&offer).await });
                }
                None => has_outcome = true,
            },
            Some(rejected) = session.rejections.recv() => tell(&news, News::Line(rejected_line(&rejected))),
            code = &mut code => break code.unwrap_or_default(),
        }
    };
    let is_early = early.is_some();
    let end = match early {
        Some(end) => end,
        None => session.lease.finish(Some(code), None).await.unwrap_or_else(unexplained),
    };
    drop(session.relay);
    let standing = Standing::of(Some(&end), Some(code), None);
    let (reason, used) = match end {
        LeaseEnd::Closed { reason, used } => (reason, used),
        LeaseEnd::Lost { reason } => (Some(reason), SessionUse::default()),
    };
    SessionEnd { is_early, reason, used, failed: failed(&mut session.handle, standing).await }
}

/// Tells an event. Returns the end of the session, if that is the event.
fn told(event: Option<LeaseEvent>, news: &Sender<News>) -> Option<LeaseEnd> {
    match event {
        Some(LeaseEvent::Warning { reason, within }) => {
            tell(news, News::Line(format!("the session ends in {} s: {reason}", within.as_secs())));
            None
        }
        Some(LeaseEvent::Ended(end)) => {
            tell(
                news,
                News::Ended(match &end {
                    LeaseEnd::Closed { reason: Some(reason), .. } => format!("the session has ended: {reason}"),
                    LeaseEnd::Closed { reason: None, .. } => "the session has ended".to_owned(),
                    LeaseEnd::Lost { reason } => format!("the session is lost: {reason}"),
                }),
            );
            Some(end)
        }
        None => Some(unexplained()),
    }
}

fn tell(news: &Sender<News>, line: News) {
    // An error means that Python has dropped the session.
    drop(news.send(line));
}

fn rejected_line(rejected: &Rejected) -> String {
    match rejected {
        Rejected::TooMany { process, .. } => {
            format!(
                "{process} is refused: the session serves the process that opened it. Open a session in the other process too."
            )
        }
        Rejected::Unreachable { .. } => rejected.to_string(),
    }
}

fn unexplained() -> LeaseEnd {
    LeaseEnd::Lost { reason: "the connection to the worker has ended".to_owned() }
}

/// Waits for the job's reply. Returns how the job failed.
async fn failed(handle: &mut SessionHandle, standing: Standing) -> Option<Ended> {
    let replied = async {
        while let Some(offer) = handle.next_offer().await {
            _ = standing.report(&offer).await;
        }
        handle.wait(REPLY_WITHIN).await
    };
    match timeout(REPLY_WITHIN, replied).await {
        Ok(Err(JobError::Failed(failed))) => Some(Ended::Failed(failed)),
        Ok(_) | Err(_) => None,
    }
}
