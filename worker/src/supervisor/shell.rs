//! The shell around the dispatcher: the task that passes inputs in and performs the effects.
//!
//! Everything arrives as [`Mail`] in one channel. The channel is unbounded, because the prefetch bounds the number of messages here, and
//! each message causes little mail at a time. All mail that has arrived is handled in one step.

use std::{
    collections::HashMap,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    time::Instant,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Supervisor,
    answering::Concluded,
    content::{Content, RawMessage},
    decoding::Begun,
    handle::{DispatcherHandle, Mail},
    preparing::Ready,
    running::Attempt,
};
use crate::{
    dispatcher::{AttemptEnd, Effect, Input, JobNo, MessageNo, PublishFailure, Settlement, Unfit},
    disposition::{Disposition, Ending},
    scheduler::DeviceId,
    shared_state::AbortOnPanic,
};

/// Maximum number of mails in one step, so that a flood of mail does not delay the first answers.
const BATCH: usize = 256;
/// Maximum size of work that is done in the shell, in bytes. Handing such work to a task would take longer.
const BRIEF_BYTES: usize = 32 << 10;

/// The shell, with the data of messages and jobs that the dispatcher does not need.
pub(super) struct Shell {
    supervisor: Arc<Supervisor>,
    handle: Arc<DispatcherHandle>,
    mail: mpsc::UnboundedReceiver<Mail>,
    messages: HashMap<MessageNo, HeldMessage>,
    deliveries: u64,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// The messages to acknowledge together at the end of the step.
    acks: Vec<MessageNo>,
    /// The names of the queues that the worker consumes.
    queues: Vec<String>,
    /// The prefetch of each queue, in the order of `queues`.
    prefetch: Vec<watch::Sender<u16>>,
    /// The callers to notify when no message is left.
    awaiting_idle: Vec<oneshot::Sender<()>>,
}

/// A message that the worker holds.
struct HeldMessage {
    raw: Arc<RawMessage>,
    /// Whether the dispatcher knows that the message's channel is closed.
    is_lost: bool,
    content: Option<Arc<Content>>,
    jobs: Vec<HeldJob>,
}

/// The data of a job that the shell keeps between two effects of the dispatcher.
#[derive(Default)]
struct HeldJob {
    cancel: CancellationToken,
    ready: Option<Ready>,
    attempt: Option<Attempt>,
}

impl Shell {
    pub(super) fn new(
        supervisor: Arc<Supervisor>,
        mail: mpsc::UnboundedReceiver<Mail>,
        queues: Vec<String>,
        prefetch: Vec<watch::Sender<u16>>,
    ) -> Self {
        Self {
            handle: Arc::clone(&supervisor.dispatcher),
            supervisor,
            mail,
            messages: HashMap::new(),
            deliveries: 0,
            inputs: Vec::new(),
            effects: Vec::new(),
            acks: Vec::new(),
            queues,
            prefetch,
            awaiting_idle: Vec::new(),
        }
    }

    /// Runs the shell; never returns. A panic here ends the process, because no message could continue.
    pub(super) async fn run(mut self) {
        let _guard = AbortOnPanic;
        let mut batch = Vec::with_capacity(BATCH);
        let mut alarm = pin!(sleep_until(Instant::now().into()));
        loop {
            self.set(alarm.as_mut());
            tokio::select! {
                biased;
                _ = self.mail.recv_many(&mut batch, BATCH) => {}
                () = alarm.as_mut() => {}
            }
            batch.drain(..).for_each(|mail| self.open(mail));
            self.step();
            self.awaiting_idle_is_over();
        }
    }

    fn set(&self, alarm: Pin<&mut Sleep>) {
        let wake = tokio::time::Instant::from_std(self.handle.dispatcher().next_wake());
        if alarm.deadline() != wake {
            alarm.reset(wake);
        }
    }

    fn awaiting_idle_is_over(&mut self) {
        if !self.awaiting_idle.is_empty() && self.handle.dispatcher().is_idle() {
            // An error means that the supervisor no longer waits.
            for idle in self.awaiting_idle.drain(..) {
                let _gone = idle.send(());
            }
        }
    }

    /// Turns mail into an input, and keeps the data that only the shell needs.
    fn open(&mut self, mail: Mail) {
        match mail {
            Mail::Input(input) => self.put(input),
            Mail::Delivered(raw, letter) => {
                self.deliveries += 1;
                let message = MessageNo(self.deliveries);
                self.messages.insert(message, HeldMessage { raw, is_lost: false, content: None, jobs: Vec::new() });
                self.put(Input::Delivered(message, letter));
            }
            Mail::Decoded { message, content, begun, decoded } => {
                let jobs = (0..).zip(begun).map(|(index, begun)| self.hold(JobNo { message, index }, begun)).collect();
                let held = self.messages.get_mut(&message).expect("a message is decoded before it is settled");
                (held.content, held.jobs) = (Some(content), jobs);
                self.put(Input::Decoded(message, decoded));
            }
            Mail::Prepared(job, ready) => {
                let (demand, reply_bytes) = (ready.demand, ready.reply_bytes);
                self.with_job(job, |held| held.ready = Some(ready));
                self.put(Input::Prepared { job, demand, reply_bytes });
            }
            Mail::Ended(job, attempt, ended) => {
                self.with_job(job, |held| held.attempt = Some(attempt));
                self.put(Input::Ended(job, ended));
            }
            Mail::Settled(settled) => {
                for (message, unreached) in settled {
                    self.put(Input::Settled { message, unreached });
                }
            }
            Mail::WhenIdle(idle) => self.awaiting_idle.push(idle),
            // An error means that the caller no longer waits.
            Mail::Ping(alive) => {
                let _gone = alive.send(());
            }
        }
    }

    fn hold(&self, job: JobNo, begun: Begun) -> HeldJob {
        let mut held = HeldJob::default();
        match begun {
            Begun::Ready(ready) => held.ready = Some(ready),
            Begun::Underway(preparing) => {
                let preparing = async move {
                    match preparing.await {
                        Ok(ready) => Mail::Prepared(job, ready),
                        Err(ending) => Attempt::default().ended(job, ending),
                    }
                };
                let fallback = Mail::Input(Input::JobBroken(job));
                self.handle.spawn_until(held.cancel.clone(), fallback, preparing);
            }
            Begun::Ended => {}
        }
        held
    }

    /// Passes an input on. If its message's channel has closed since the last input, the dispatcher is told first.
    fn put(&mut self, input: Input) {
        if let Some(message) = input.message() {
            if let Some(held) = self.messages.get_mut(&message)
                && !matches!(input, Input::Delivered(..) | Input::Settled { .. })
                && !held.raw.envelope.is_live()
                && !mem::replace(&mut held.is_lost, true)
            {
                self.inputs.push(Input::Lost(message));
            }
            if let Input::Settled { .. } = input {
                self.messages.remove(&message);
            }
        }
        self.inputs.push(input);
    }

    /// Steps the dispatcher until there are no new inputs, because some effects are answered at once.
    fn step(&mut self) {
        loop {
            let mut effects = mem::take(&mut self.effects);
            self.handle.dispatcher().step(Instant::now(), &mut self.inputs, &mut effects);
            effects.drain(..).for_each(|effect| self.perform(effect));
            self.effects = effects;
            self.acknowledge();
            if self.inputs.is_empty() {
                return;
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Decode(message) => {
                let (supervisor, raw) = (Arc::clone(&self.supervisor), self.raw(message));
                let is_brief = raw.body.len() <= BRIEF_BYTES;
                self.work(is_brief, Input::Broken(message), async move { supervisor.decode(message, raw) });
            }
            Effect::Start { job, device, cache_bytes_max } => self.start(job, device, cache_bytes_max),
            Effect::Cancel(job) => self.with_job(job, |held| held.cancel.cancel()),
            Effect::Forward(job, unfit) => self.forward(job, unfit),
            Effect::Count(message, state) => {
                self.supervisor.metrics.attempt_ended(self.raw(message).envelope.pool_id, state);
            }
            Effect::Answer { message, jobs, last_attempt } => self.answer(message, jobs, last_attempt),
            Effect::AnswerNothing(message) => {
                let (supervisor, raw) = (Arc::clone(&self.supervisor), self.raw(message));
                self.publish(message, async move { supervisor.answer_nothing(&raw.envelope).await });
            }
            // The broker redelivers the message, and the worker that receives it decides.
            Effect::Copy { message, .. } | Effect::Refuse(message, _) if !self.raw(message).envelope.is_live() => {
                self.put(Input::Published(message, Err(PublishFailure::channel_closed())));
            }
            Effect::Copy { message, delivery_count } => {
                let (supervisor, raw) = (Arc::clone(&self.supervisor), self.raw(message));
                self.publish(message, async move { supervisor.publish_copy(&raw, delivery_count).await });
            }
            Effect::Refuse(message, failure) => {
                let (supervisor, raw) = (Arc::clone(&self.supervisor), self.raw(message));
                self.publish(message, async move { supervisor.refuse(&raw, *failure).await });
            }
            Effect::Settle(message, settlement) => self.settle(message, settlement),
            Effect::LookForIdle { message, queue } => {
                let (supervisor, queue) = (Arc::clone(&self.supervisor), self.queues[queue].clone());
                let raw = self.raw(message);
                self.work(false, Input::Looked { message, others_idle: false }, async move {
                    let others_idle = supervisor.are_others_idle(&queue, &raw.envelope.acker).await;
                    Mail::Input(Input::Looked { message, others_idle })
                });
            }
            Effect::Prefetch(queue, prefetch) => {
                debug!(queue, prefetch, "prefetch changed");
                self.prefetch[queue].send_replace(prefetch);
            }
            Effect::ReleaseCache(device, pool) => self.handle.release_request(device, pool).notify_one(),
            Effect::OrdersKnown(all_known) => self.supervisor.orders.set_known(all_known),
            Effect::DrainOrdered => self.supervisor.orders.order_drain(),
        }
    }

    fn start(&mut self, job: JobNo, device: DeviceId, cache_bytes_max: u64) {
        let held = self.messages.get_mut(&job.message).expect("a job starts before its message is settled");
        let of_job = &mut held.jobs[job.index];
        let ready = of_job.ready.take().expect("only a prepared job starts");
        // The delivery's channel may have closed just now.
        if !held.raw.envelope.is_live() {
            let (ending, bytes, returns, used_us) = (Ending::HandedBack, 0, false, None);
            return self.put(Input::Ended(job, Box::new(AttemptEnd { ending, bytes, returns, used_us })));
        }
        let (supervisor, cancel) = (Arc::clone(&self.supervisor), of_job.cancel.clone());
        let is_brief = ready.demand.bytes <= BRIEF_BYTES as u64;
        self.work(is_brief, Input::JobBroken(job), async move {
            supervisor.run_job(job, ready, device, cache_bytes_max, &cancel).await
        });
    }

    fn forward(&mut self, job: JobNo, unfit: Unfit) {
        let held = self.messages.get_mut(&job.message).expect("a job is forwarded before its message is settled");
        let ready = held.jobs[job.index].ready.take().expect("only a prepared job waited for a slot");
        let supervisor = Arc::clone(&self.supervisor);
        self.work(false, Input::JobBroken(job), async move { supervisor.forward_job(job, ready, unfit).await });
    }

    fn answer(&mut self, message: MessageNo, jobs: Vec<(usize, Disposition)>, last_attempt: u32) {
        let held = self.messages.get_mut(&message).expect("a message is answered before it is settled");
        let content = Arc::clone(held.content.as_ref().expect("only a decoded message has jobs"));
        let concluded = jobs.into_iter().map(|(index, disposition)| {
            // The shell needs nothing else of the job any more.
            let HeldJob { attempt, .. } = mem::take(&mut held.jobs[index]);
            Concluded { index, disposition, attempt: attempt.unwrap_or_default() }
        });
        let concluded: Vec<_> = concluded.collect();
        let is_brief = concluded.iter().map(Concluded::bytes).sum::<usize>() <= BRIEF_BYTES;
        let supervisor = Arc::clone(&self.supervisor);
        self.work(is_brief, Input::Answered(message, Err(PublishFailure::panicked())), async move {
            supervisor.answer(message, &content, concluded, last_attempt).await
        });
    }

    fn settle(&mut self, message: MessageNo, settlement: Settlement) {
        match settlement {
            Settlement::Answered | Settlement::SentOn => self.acks.push(message),
            Settlement::Requeue => {
                let (supervisor, raw) = (Arc::clone(&self.supervisor), self.raw(message));
                self.work(true, Input::Settled { message, unreached: None }, async move {
                    supervisor.requeue(message, &raw).await
                });
            }
        }
    }

    fn acknowledge(&mut self) {
        if self.acks.is_empty() {
            return;
        }
        let acks = mem::take(&mut self.acks);
        let fallback = Mail::Settled(acks.iter().map(|message| (*message, None)).collect());
        let messages = acks.into_iter().map(|message| (message, self.raw(message))).collect();
        let supervisor = Arc::clone(&self.supervisor);
        let settled = self.handle.begin(fallback, async move { supervisor.acknowledge(messages).await });
        settled.into_iter().for_each(|mail| self.open(mail));
    }

    /// Runs work in a task; short work runs here as far as it needs no wait. `fallback` is the input in case of a panic.
    fn work(&mut self, is_brief: bool, fallback: Input, work: impl Future<Output = Mail> + Send + 'static) {
        let fallback = Mail::Input(fallback);
        if !is_brief {
            return self.handle.spawn(fallback, work);
        }
        if let Some(mail) = self.handle.begin(fallback, work) {
            self.open(mail);
        }
    }

    fn publish(
        &self,
        message: MessageNo,
        publishing: impl Future<Output = Result<(), gpufleet_transport::PublishError>> + Send + 'static,
    ) {
        let fallback = Mail::Input(Input::Published(message, Err(PublishFailure::panicked())));
        self.handle.spawn(fallback, async move {
            Mail::Input(Input::Published(message, publishing.await.map_err(PublishFailure::from)))
        });
    }

    fn raw(&self, message: MessageNo) -> Arc<RawMessage> {
        Arc::clone(&self.messages.get(&message).expect("a message stays until it is settled").raw)
    }

    /// Applies `then` to the job, unless its message is already settled.
    fn with_job(&mut self, job: JobNo, then: impl FnOnce(&mut HeldJob)) {
        if let Some(held) = self.messages.get_mut(&job.message).and_then(|held| held.jobs.get_mut(job.index)) {
            then(held);
        }
    }
}
