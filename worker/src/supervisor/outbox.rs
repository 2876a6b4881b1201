//! Publishes replies, retries, forwarded jobs and dead-lettered messages.

use std::collections::BTreeMap;

use gpufleet_schema::{
    ClientName, Encoding, Failure, JobId, MessageId, OneOrMany, Output, Reply, TraceContext,
    bounds::{HEADER_TEXT_BYTES_MAX, MESSAGE_BYTES_MAX},
    topology::{
        DEAD, DEAD_KEY, FORWARDED, HEADER_ATTEMPT, HEADER_BODY_BYTES, HEADER_DELIVERIES, HEADER_LOSSES, HEADER_ORIGIN,
        HEADER_REASON, HEADER_REPLY_TOKEN, HEADER_TRACEPARENT, HEADER_UNAVAILABLE, HEADER_USER, REPLIES, Rung, TASKS,
        TYPE_REPLY, forwarded_key, retry_rung,
    },
};
use gpufleet_transport::{HeaderValue, Message, Properties, PublishError};
use tracing::{trace, warn};

use super::{
    Supervisor,
    clock::{Received, micros, unix_ms},
    content::RawMessage,
    envelope::Envelope,
    owed::is_refusal,
};
use crate::{
    disposition::RetryHistory,
    forwarding::{Destination, ForwardingHistory},
};

/// Upper estimate of the fixed parts of a reply (keys, numbers, job id and worker name), in bytes.
const FRAME_BYTES: usize = 1 << 10;
/// Upper estimate of what a host program used in a reply: ten names and numbers.
const SESSION_BYTES: usize = 512;

/// Upper estimate of the keys of an output, in bytes.
const OUTPUT_FRAME_BYTES: usize = 128;

/// Maximum length of a number with a comma in JSON, in bytes.
const NUMBER_BYTES: usize = 21;

/// Number of bytes kept of a body that exceeds a message: enough to identify its producer.
const OVERSIZE_KEPT_BYTES: usize = 64 << 10;

/// How to publish a task again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    pub(super) attempt: u32,
    pub(super) past: RetryHistory,
    pub(super) after: Option<Rung>,
}

/// How to forward a task that does not fit here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarded {
    pub(super) attempt: u32,
    pub(super) past: RetryHistory,
    pub(super) history: ForwardingHistory,
    pub(super) to: Destination,
}

impl Supervisor {
    /// Publishes the replies of each client, in as few messages as their sizes allow.
    pub(super) async fn publish_replies(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        mut replies: Vec<(ClientName, Reply<'_>)>,
        as_list: bool,
    ) -> Result<(), PublishError> {
        // The sort is stable: replies of one client stay in the order of their tasks.
        replies.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut replies = replies.into_iter().peekable();
        while let Some((client, first)) = replies.next() {
            let mut bytes = estimate(&first, encoding);
            let mut list = vec![first];
            while let Some((_, next)) = replies
                .next_if(|(name, reply)| *name == client && bytes + estimate(reply, encoding) <= MESSAGE_BYTES_MAX)
            {
                bytes += estimate(&next, encoding);
                list.push(next);
            }
            let list = match as_list {
                true => OneOrMany::Many(list),
                false => OneOrMany::One(list.pop().expect("a list starts with one reply")),
            };
            self.publish_reply(envelope, encoding, &client, &list).await?;
        }
        Ok(())
    }

    pub(super) async fn publish_reply(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        client: &ClientName,
        replies: &OneOrMany<Reply<'_>>,
    ) -> Result<(), PublishError> {
        self.publish_encoded_reply(envelope, encoding, client, encode(encoding, replies)).await
    }

    pub(super) async fn publish_encoded_reply(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        client: &ClientName,
        body: Vec<u8>,
    ) -> Result<(), PublishError> {
        let message = Message {
            exchange: REPLIES,
            routing_key: client.to_string(),
            body,
            properties: Properties {
                message_id: Some(MessageId::new().to_string()),
                // Copied unchanged: AMQP limits both short strings to 255 bytes.
                correlation_id: envelope
                    .properties
                    .correlation_id
                    .clone()
                    .or_else(|| envelope.properties.message_id.clone()),
                content_type: Some(encoding.content_type().to_owned()),
                kind: Some(TYPE_REPLY.to_owned()),
                timestamp: Some(unix_seconds()),
                headers: envelope.copied_headers(),
                ..Properties::default()
            },
            // The alternate exchange keeps replies to clients that have left.
        };
        trace_reply(envelope.received);
        self.publish_owed_reply(envelope, message).await
    }

    /// Publishes one task to its queue as a message of its own, at once or through the retry ladder.
    pub(super) async fn publish_task(
        &self,
        envelope: &Envelope,
        job_id: JobId,
        body: Vec<u8>,
        again: Again,
    ) -> Result<(), PublishError> {
        let mut properties = envelope.reusable_properties(self.own_user());
        envelope.forwarding.write(&mut properties.headers);
        properties.message_id = Some(job_id.to_string());
        properties.headers.insert(HEADER_ATTEMPT.to_owned(), again.attempt.into());
        again.past.write(&mut properties.headers);
        let message = Message {
            exchange: again.after.map_or(TASKS, |rung| rung.name),
            routing_key: envelope.task_key(),
            body,
            properties,
        };
        self.publish_owed(envelope, message).await
    }

    /// Publishes one task to a device class, or to its task queue after a delay. The message keeps its delivery count. Otherwise a job that
    /// kills the workers of its class would start from zero each time the class loses its last worker.
    pub(super) async fn publish_forwarded(
        &self,
        envelope: &Envelope,
        job_id: JobId,
        body: Vec<u8>,
        forwarded: Forwarded,
    ) -> Result<(), PublishError> {
        let Forwarded { attempt, past, history, to } = forwarded;
        let mut properties = envelope.reusable_properties(self.own_user());
        history.write(&mut properties.headers);
        properties.message_id = Some(job_id.to_string());
        properties.headers.insert(HEADER_ATTEMPT.to_owned(), attempt.into());
        past.write(&mut properties.headers);
        write_deliveries(envelope.delivery_count, &mut properties.headers);
        let later = |rung: Rung| (rung.name, envelope.task_key());
        let (exchange, routing_key) = match to {
            Destination::Class(class) => (FORWARDED, forwarded_key(&envelope.pool, class, envelope.priority)),
            Destination::Later(rung) => later(rung),
        };
        let message = Message { exchange, routing_key, body, properties };
        let Destination::Class(class) = to else { return self.publish_owed(envelope, message).await };
        match self.broker.publish(message.clone()).await {
            // The class's queue is full, unavailable or deleted. In the last case its consumers declare it again.
            Err(error) if is_refusal(&error) => {
                warn!(%class, %error, "job not forwarded, delayed instead");
                let (exchange, routing_key) = later(retry_rung(1));
                self.publish_owed(envelope, Message { exchange, routing_key, ..message }).await
            }
            published => published,
        }
    }

    /// Publishes the whole message again as a copy, with a header that counts its deliveries.
    pub(super) async fn publish_copy(&self, raw: &RawMessage, delivery_count: u64) -> Result<(), PublishError> {
        let RawMessage { envelope, body } = raw;
        let mut copy = self.copy(TASKS, envelope, envelope.forwarding, body.clone());
        write_deliveries(delivery_count, &mut copy.properties.headers);
        self.publish_owed(envelope, copy).await
    }

    /// Publishes the whole message again after a delay, for a job whose device class has lost its last worker. That loss is not a
    /// disagreement between workers, so the count of forwards restarts.
    pub(super) async fn publish_stranded(&self, raw: &RawMessage) -> Result<(), PublishError> {
        let RawMessage { envelope, body } = raw;
        let history = ForwardingHistory { forwards: 0, ..envelope.forwarding };
        self.publish_owed(envelope, self.copy(retry_rung(2).name, envelope, history, body.clone())).await
    }

    fn copy(&self, exchange: &'static str, envelope: &Envelope, history: ForwardingHistory, body: Vec<u8>) -> Message {
        let mut properties = envelope.reusable_properties(self.own_user());
        history.write(&mut properties.headers);
        properties.headers.insert(HEADER_ATTEMPT.to_owned(), envelope.attempt.into());
        envelope.past.write(&mut properties.headers);
        write_deliveries(envelope.delivery_count, &mut properties.headers);
        let routing_key = envelope.task_key();
        Message { exchange, routing_key, body, properties }
    }

    /// Dead-letters a body, with headers that describe the reason.
    pub(super) async fn publish_dead(
        &self,
        envelope: &Envelope,
        mut body: Vec<u8>,
        reason: &str,
    ) -> Result<(), PublishError> {
        let mut properties = envelope.reusable_properties(self.own_user());
        if body.len() > MESSAGE_BYTES_MAX {
            let bytes = i64::try_from(body.len()).unwrap_or(i64::MAX);
            properties.headers.insert(HEADER_BODY_BYTES.to_owned(), bytes.into());
            body.truncate(OVERSIZE_KEPT_BYTES);
        }
        let reason = &reason[..reason.floor_char_boundary(HEADER_TEXT_BYTES_MAX)];
        properties.headers.insert(HEADER_REASON.to_owned(), reason.into());
        let origin = envelope.task_key();
        properties.headers.insert(HEADER_ORIGIN.to_owned(), origin.into());
        let message = Message { exchange: DEAD, routing_key: DEAD_KEY.to_owned(), body, properties };
        self.publish_owed(envelope, message).await
    }

    /// Returns the user that the broker validates for this worker's messages, if user ids are enabled.
    pub(super) fn own_user(&self) -> Option<&str> {
        self.config.user_id.then(|| self.broker.urls().user())
    }
}

impl RetryHistory {
    /// Writes the history into headers.
    fn write(self, headers: &mut BTreeMap<String, HeaderValue>) {
        headers.insert(HEADER_LOSSES.to_owned(), self.losses.into());
        if self.unavailable > 0 {
            headers.insert(HEADER_UNAVAILABLE.to_owned(), self.unavailable.into());
        }
    }
}

impl Envelope {
    pub(super) fn message_id(&self) -> &str {
        self.properties.message_id.as_deref().unwrap_or("none")
    }

    /// Returns the producer's properties for a message by this worker. The broker validates a user only for that user's own connection, so
    /// the producer's user moves into a header, which is trustworthy because the worker's user is validated.
    fn reusable_properties(&self, own: Option<&str>) -> Properties {
        let mut headers = self.copied_headers();
        let user = self.user.as_deref().filter(|user| user.len() <= HEADER_TEXT_BYTES_MAX);
        let vouched = own.zip(user);
        headers.extend(vouched.map(|(_, user)| (HEADER_USER.to_owned(), user.into())));
        Properties { user_id: vouched.map(|(own, _)| own.to_owned()), headers, ..self.properties.clone() }
    }

    /// Returns the span in which the producer published the message, if a header names one.
    pub(super) fn traceparent(&self) -> Option<TraceContext> {
        self.properties.header_text(HEADER_TRACEPARENT)?.parse().ok()
    }

    /// Returns the producer's headers that every message about its tasks carries.
    pub(super) fn copied_headers(&self) -> BTreeMap<String, HeaderValue> {
        let traceparent = self.properties.header_text(HEADER_TRACEPARENT);
        let traceparent = traceparent.filter(|text| text.len() <= HEADER_TEXT_BYTES_MAX);
        [(HEADER_TRACEPARENT, traceparent), (HEADER_REPLY_TOKEN, self.reply_token())]
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text?.into())))
            .collect()
    }
}

/// Writes the delivery count into a header unless it is zero.
fn write_deliveries(delivery_count: u64, headers: &mut BTreeMap<String, HeaderValue>) {
    let deliveries = i64::try_from(delivery_count).unwrap_or(i64::MAX);
    if deliveries > 0 {
        headers.insert(HEADER_DELIVERIES.to_owned(), deliveries.into());
    }
}

/// Logs how long the worker has had the message; `gpufleet-bench overhead` reads this line.
pub(super) fn trace_reply(received: Received) {
    trace!(handled_us = micros(received.elapsed()), "publishing reply");
}

pub(super) fn encode(encoding: Encoding, replies: &OneOrMany<Reply<'_>>) -> Vec<u8> {
    encoding.encode_replies(replies).expect("a reply has nothing that can't be encoded")
}

/// Returns an upper estimate of the reply's size in a message, in bytes.
fn estimate(reply: &Reply<'_>, encoding: Encoding) -> usize {
    let outputs: usize = reply.outputs.iter().map(|output| output_bytes(output, encoding)).sum();
    let failure = reply.failure.as_ref().map_or(0, failure_texts);
    let printed = reply.printf_output.as_ref().map_or(0, |printed| text(&printed.text));
    let device = reply.ran_on.as_ref().map_or(0, |ran_on| text(&ran_on.device_name));
    let used = if reply.session.is_some() { SESSION_BYTES } else { 0 };
    FRAME_BYTES + outputs + failure + printed + device + used + reply.timings.launches_us.len() * NUMBER_BYTES
}

fn failure_texts(failure: &Failure) -> usize {
    let (detail, source) = (failure.detail.as_deref(), failure.source.as_ref());
    text(&failure.message) + detail.map_or(0, text) + source.map_or(0, |source| text(&source.text))
}

fn output_bytes(output: &Output<'_>, encoding: Encoding) -> usize {
    let bytes = output.inline_bytes();
    let data = match encoding {
        Encoding::MessagePack => bytes,
        Encoding::Json => bytes.div_ceil(3) * 4,
    };
    OUTPUT_FRAME_BYTES + text(&output.name) + output.shape.len() * NUMBER_BYTES + data
}

/// Returns an upper estimate of a text's size, in bytes. JSON may write a character with six bytes.
fn text(text: &str) -> usize {
    text.len() * 6
}

pub(super) fn unix_seconds() -> u64 {
    (unix_ms() / 1000).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{AttemptState, Dtype, FailureCode, Inline, PrintfOutput, RanOn, Timings, Verdict};

    use super::*;

    /// Returns a reply in which every part has its maximum length.
    fn largest() -> Reply<'static> {
        let output = |index: usize| Output {
            name: "\"".repeat(255 + index % 2),
            dtype: Dtype::U8,
            shape: vec![u64::MAX; 8],
            data: Inline::from(vec![0; index % 5]).into(),
        };
        let program = ["\u{1}".repeat(1 << 10).as_str(); 9].join("\n");
        let failure = Failure::new(Verdict::Infrastructure, FailureCode::RequirementsNotMet, "\u{1}".repeat(1 << 20));
        Reply {
            version: u32::MAX,
            job_id: Some(JobId::new()),
            attempt: u32::MAX,
            state: AttemptState::Succeeded,
            failure: Some(failure.with_detail("\u{1}".repeat(1 << 20)).at_line(Some(5)).in_program(&program)),
            outputs: (0..256).map(output).collect(),
            timings: Timings {
                queue_us: u64::MAX,
                wait_us: u64::MAX,
                fetch_us: u64::MAX,
                compile_us: u64::MAX,
                load_us: u64::MAX,
                copy_in_us: u64::MAX,
                launches_us: vec![u64::MAX; 1024],
                copy_out_us: u64::MAX,
                total_us: u64::MAX,
                device_bytes_peak: u64::MAX,
                module_cached: false,
            },
            ran_on: Some(RanOn {
                worker: "w".repeat(100).parse().unwrap(),
                device: u32::MAX,
                device_name: "\"".repeat(256),
                emulated: false,
            }),
            printf_output: PrintfOutput::of("\"".repeat(1 << 20).as_bytes(), u64::MAX),
            session: None,
        }
    }

    #[test]
    fn no_reply_is_larger_than_it_is_taken_for() {
        let smallest =
            Reply { failure: None, outputs: Vec::new(), timings: Timings::default(), printf_output: None, ..largest() };
        for reply in [largest(), smallest] {
            for encoding in [Encoding::MessagePack, Encoding::Json] {
                let encoded = encoding.encode_replies(&OneOrMany::Many(vec![reply.clone()])).unwrap();
                let estimate = estimate(&reply, encoding);
                assert!(encoded.len() <= estimate, "{encoding}: {} bytes taken for {estimate}", encoded.len());
            }
        }
    }
}
