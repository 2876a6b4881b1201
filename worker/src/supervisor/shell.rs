//! The shell around the dispatcher: the task that passes inputs in and performs the effects.
//!
//! Everything arrives as [`Mail`] in one channel. The channel is unbounded, because the prefetch bounds the number of messages here, and
//! each message causes little mail at a time. All mail that has arrived is handled in one step.

use std::{
    mem,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Supervisor,
    answering::Concluded,
    attempt_result::AttemptResult,
    brief::BRIEF_BYTES,
    content::RawMessage,
    handle::{DispatcherHandle, Input, Mail, Snapshot, begun},
    held::{HeldJob, HeldMessage},
    prepared::Ready,
    running::Boarding,
    task_queue::{Route, TaskQueue},
};
use crate::{
    dispatcher::{Dispatcher, Effect, JobNo, MessageNo, PublishFailure, Settlement, Unfit},
    disposition::{Disposition, Ending},
    scheduler::ExecutorId,
    shared_state::AbortOnPanic,
};

/// Maximum number of mails in one step, so that a flood of mail does not delay the first answers.
const BATCH: usize = 256;

/// Acknowledgements that are still being written to the connection. Waking the shell for each would cost a context switch, and nothing
/// needs the result soon. So the shell polls them when it handles other mail, or after [`Self::LOOKED_AT_WITHIN`].
#[derive(Default)]
struct Settling {
    writing: Vec<BoxFuture<'static, Input>>,
    since: Option<Instant>,
}

impl Settling {
    const LOOKED_AT_WITHIN: Duration = Duration::from_millis(10);

    fn add(&mut self, writing: BoxFuture<'static, Input>) {
        self.writing.push(writing);
        self.since.get_or_insert_with(Instant::now);
    }

    fn next_look(&self) -> Option<Instant> {
        Some(self.since? + Self::LOOKED_AT_WITHIN)
    }

    /// Returns the results of those that have ended.
    fn ended(&mut self) -> Vec<Input> {
        let mut ended = Vec::new();
        self.writing.retain_mut(|writing| match writing.now_or_never() {
            Some(input) => {
                ended.push(input);
                false
            }
            None => true,
        });
        self.since = (!self.writing.is_empty()).then(Instant::now);
        ended
    }
}

/// The dispatcher, and what its effects need.
pub(super) struct Shell {
    supervisor: Arc<Supervisor>,
    handle: Arc<DispatcherHandle>,
    dispatcher: Dispatcher<HeldMessage, HeldJob>,
    mail: mpsc::UnboundedReceiver<Mail>,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// The messages to acknowledge together at the end of the step.
    acks: Vec<MessageNo>,
    /// The queues that the worker consumes, and the prefetch of each.
    queues: Vec<(String, watch::Sender<u16>)>,
    /// The acknowledgements that are being written.
    settling: Settling,
    /// The callers to notify when no message is left.
    awaiting_idle: Vec<oneshot::Sender<()>>,
}

impl Shell {
    /// Creates the shell of a worker that consumes these queues. Returns it with each queue's prefetch, given the devices that have opened
    /// so far.
    pub(super) fn new(
        supervisor: Arc<Supervisor>,
        mut dispatcher: Dispatcher<HeldMessage, HeldJob>,
        mut mail: mpsc::UnboundedReceiver<Mail>,
        queues: &[TaskQueue],
    ) -> (Self, Vec<watch::Receiver<u16>>) {
        let mut inputs = Vec::new();
        while let Ok(Mail::Input(input)) = mail.try_recv() {
            inputs.push(input);
        }
        // There are no jobs yet, so the step has no effects.
        dispatcher.step(Instant::now(), &mut inputs, &mut Vec::new());
        let first = dispatcher.serve(supervisor.prefetch_limits(), queues.iter().map(TaskQueue::served).collect());
        let (senders, prefetch): (Vec<_>, Vec<_>) = first.into_iter().map(watch::channel).unzip();
        let shell = Self {
            handle: Arc::clone(&supervisor.dispatcher),
            supervisor,
            dispatcher,
            mail,
            inputs,
            effects: Vec::new(),
            acks: Vec::new(),
            queues: queues.iter().map(TaskQueue::name).zip(senders).collect(),
            settling: Settling::default(),
            awaiting_idle: Vec::new(),
        };
        (shell, prefetch)
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
            for settled in self.settling.ended() {
                self.put(settled);
            }
            self.step();
            self.awaiting_idle_is_over();
        }
    }

    fn set(&self, alarm: Pin<&mut Sleep>) {
        let wake = self.settling.next_look().into_iter().fold(self.dispatcher.next_wake(), Instant::min);
        let wake = tokio::time::Instant::from_std(wake);
        if alarm.deadline() != wake {
            alarm.reset(wake);
        }
    }

    fn awaiting_idle_is_over(&mut self) {
        if !self.awaiting_idle.is_empty() && self.dispatcher.is_idle() {
            // An error means that the supervisor no longer waits.
            for idle in self.awaiting_idle.drain(..) {
                let _gone = idle.send(());
            }
        }
    }

    fn open(&mut self, mail: Mail) {
        match mail {
            Mail::Input(input) => self.put(input),
            Mail::WhenIdle(idle) => self.awaiting_idle.push(idle),
            // An error means that the caller no longer waits.
            Mail::Ask(answer) => drop(answer.send(Snapshot::of(&self.dispatcher))),
        }
    }

    /// Passes an input on. If its message's channel has closed since the last input, the dispatcher is told first.
    fn put(&mut self, input: Input) {
        if let Some(message) = input.message()
            && self.dispatcher.is_live(message)
            && !self.raw(message).envelope.is_live()
        {
            self.inputs.push(Input::Lost(message));
        }
        self.inputs.push(input);
    }

    /// Steps the dispatcher until there are no new inputs, because some effects are answered at once.
    fn step(&mut self) {
        loop {
            let mut effects = mem::take(&mut self.effects);
            self.dispatcher.step(Instant::now(), &mut self.inputs, &mut effects);
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
            Effect::Prepare(job) => self.prepare(job),
            Effect::Start { jobs, executor, cache_bytes_max } => match *jobs {
                [job] => self.start(job, executor, cache_bytes_max),
                _ => self.start_train(&jobs, executor, cache_bytes_max),
            },
            Effect::Cancel(job) => {
                if let Some(held) = self.dispatcher.held_job(job) {
                    mem::take(held).cancel();
                }
            }
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
                let (supervisor, queue) = (Arc::clone(&self.supervisor), self.queues[queue].0.clone());
                let raw = self.raw(message);
                self.work(false, Input::Looked { message, others_idle: false }, async move {
                    let others_idle = supervisor.are_others_idle(&queue, &raw.envelope.acker).await;
                    Input::Looked { message, others_idle }
                });
            }
            Effect::Prefetch(queue, prefetch) => {
                debug!(queue, prefetch, "prefetch changed");
                self.queues[queue].1.send_replace(prefetch);
            }
            Effect::ReleaseCache(executor) => self.handle.release_request(executor).notify_one(),
            Effect::OrdersKnown(all_known) => self.supervisor.orders.set_known(all_known),
            Effect::DrainOrdered => self.supervisor.orders.order_drain(),
        }
    }

    fn prepare(&mut self, job: JobNo) {
        let cancel = CancellationToken::new();
        let HeldJob::Preparing(preparing) = self.replace_job(job, HeldJob::Underway(cancel.clone())) else {
            unreachable!("only a job whose preparation waits is prepared further")
        };
        self.handle.spawn_until(cancel, Input::JobBroken(job), async move {
            match preparing.await {
                Ok(ready) => ready.prepared(job),
                Err(ending) => AttemptResult::default().ended(job, ending),
            }
        });
    }

    fn start(&mut self, job: JobNo, executor: ExecutorId, cache_bytes_max: u64) {
        let cancel = CancellationToken::new();
        let ready = self.take_ready(job, HeldJob::Underway(cancel.clone()));
        // The delivery's channel may have closed just now.
        if !self.raw(job.message).envelope.is_live() {
            return self.put(AttemptResult::default().ended(job, Ending::HandedBack));
        }
        let supervisor = Arc::clone(&self.supervisor);
        match ready.envelope().route {
            Route::Session => {
                return self.work(false, Input::JobBroken(job), async move {
                    supervisor.run_session(job, ready, executor.device, &cancel).await
                });
            }
            Route::Program => {
                return self.work(false, Input::JobBroken(job), async move {
                    supervisor.run_program(job, ready, executor.device, &cancel).await
                });
            }
            Route::Pool | Route::AffinitySlot(_) | Route::Class(_) => {}
        }
        let is_brief = ready.demand.bytes <= BRIEF_BYTES as u64;
        self.work(is_brief, Input::JobBroken(job), async move {
            supervisor.run_job(job, ready, executor, cache_bytes_max, &cancel).await
        });
    }

    fn start_train(&mut self, jobs: &[JobNo], executor: ExecutorId, cache_bytes_max: u64) {
        let mut train = Vec::with_capacity(jobs.len());
        for job in jobs {
            let cancel = CancellationToken::new();
            let ready = self.take_ready(*job, HeldJob::Underway(cancel.clone()));
            // The delivery's channel may have closed just now.
            match self.raw(job.message).envelope.is_live() {
                true => train.push(Boarding { job: *job, ready, cancel }),
                false => self.put(AttemptResult::default().ended(*job, Ending::HandedBack)),
            }
        }
        let broken = train.iter().map(|boarding| Input::JobBroken(boarding.job)).collect();
        let supervisor = Arc::clone(&self.supervisor);
        self.handle.begin_train(broken, async move { supervisor.run_train(train, executor, cache_bytes_max).await });
    }

    fn forward(&mut self, job: JobNo, unfit: Unfit) {
        let (supervisor, ready) = (Arc::clone(&self.supervisor), self.take_ready(job, HeldJob::default()));
        // A copy beside the broker's redelivery would offer the session twice.
        if ready.demand.session.is_some() && !ready.envelope().is_live() {
            return self.put(AttemptResult::default().ended(job, Ending::HandedBack));
        }
        self.work(false, Input::JobBroken(job), async move { supervisor.forward_job(job, ready, unfit).await });
    }

    fn answer(&mut self, message: MessageNo, jobs: Vec<(usize, Disposition)>, last_attempt: u32) {
        let concluded = jobs.into_iter().map(|(index, disposition)| {
            let attempt = self.replace_job(JobNo { message, index }, HeldJob::default()).into_result();
            Concluded { index, disposition, attempt }
        });
        let concluded: Vec<_> = concluded.collect();
        let content = Arc::clone(self.held(message).content());
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
                self.work(true, Input::Settled(vec![(message, None)]), async move {
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
        let fallback = Input::Settled(acks.iter().map(|message| (*message, None)).collect());
        let messages = acks.into_iter().map(|message| (message, self.raw(message))).collect();
        let supervisor = Arc::clone(&self.supervisor);
        match begun(fallback, async move { supervisor.acknowledge(messages).await }) {
            Ok(settled) => self.put(settled),
            Err(rest) => self.settling.add(rest),
        }
    }

    /// Runs work in a task; short work runs here as far as it needs no wait. `fallback` is the input in case of a panic.
    fn work(&mut self, is_brief: bool, fallback: Input, work: impl Future<Output = Input> + Send + 'static) {
        if !is_brief {
            return self.handle.spawn(fallback, work);
        }
        if let Some(input) = self.handle.begin(fallback, work) {
            self.put(input);
        }
    }

    fn publish(
        &self,
        message: MessageNo,
        publishing: impl Future<Output = Result<(), gpufleet_transport::PublishError>> + Send + 'static,
    ) {
        let fallback = Input::Published(message, Err(PublishFailure::panicked()));
        self.handle
            .spawn(fallback, async move { Input::Published(message, publishing.await.map_err(PublishFailure::from)) });
    }

    fn held(&self, message: MessageNo) -> &HeldMessage {
        self.dispatcher.held(message).expect("a message stays until it is settled")
    }

    fn raw(&self, message: MessageNo) -> Arc<RawMessage> {
        Arc::clone(self.held(message).raw())
    }

    /// Replaces what is kept with a job of a message that is not settled.
    fn replace_job(&mut self, job: JobNo, held: HeldJob) -> HeldJob {
        mem::replace(self.dispatcher.held_job(job).expect("a message stays until it is settled"), held)
    }

    fn take_ready(&mut self, job: JobNo, held: HeldJob) -> Ready {
        match self.replace_job(job, held) {
            HeldJob::Ready(ready) => ready,
            _ => unreachable!("only a prepared job waits for a slot"),
        }
    }
}
