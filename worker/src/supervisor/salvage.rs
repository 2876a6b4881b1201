//! Reads the ids and clients of a message that can't be decoded as tasks, so that its producer gets a reply and the ledger a record.

use gpufleet_schema::{ClientName, Encoding, JobId, bounds::MESSAGE_BYTES_MAX};

use super::envelope::Envelope;

/// A job of an unreadable message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// The job's id; `None` stands for one or more jobs with unknown ids.
    pub(super) job_id: Option<JobId>,
    /// The client that the task names.
    pub(super) reply: Option<ClientName>,
}

impl Envelope {
    /// Returns the jobs of an undecodable body: those with readable ids, or else one without an id. A producer may have declared the wrong
    /// encoding, so the other one is tried too.
    pub(super) fn salvage(&self, body: &[u8]) -> Vec<Salvaged> {
        let declared = self.encoding().unwrap_or(Encoding::Json);
        let encodings = match declared {
            Encoding::Json => [Encoding::Json, Encoding::MessagePack],
            Encoding::MessagePack => [Encoding::MessagePack, Encoding::Json],
        };
        let jobs = encodings.into_iter().map(|encoding| jobs_in(encoding, body));
        let named = || Salvaged { job_id: self.message_job().filter(|id| mentions(body, *id)), reply: None };
        jobs.into_iter().find(|jobs| !jobs.is_empty()).unwrap_or_else(|| vec![named()])
    }

    /// Returns the id for the ledger if the message names no job: the message's own id, unless the message is a list.
    pub(super) fn record_id(&self, body: &[u8]) -> Option<JobId> {
        let encoding = self.encoding().unwrap_or(Encoding::Json);
        if encoding.is_list(body).unwrap_or(false) { None } else { self.message_job() }
    }

    fn message_job(&self) -> Option<JobId> {
        self.properties.message_id.as_deref()?.parse().ok()
    }
}

fn jobs_in(encoding: Encoding, body: &[u8]) -> Vec<Salvaged> {
    let heads = if body.len() > MESSAGE_BYTES_MAX { Vec::new() } else { encoding.decode_heads(body) };
    let jobs = heads.into_iter().filter(|head| head.job_id.is_some());
    jobs.map(|head| Salvaged { job_id: head.job_id, reply: head.reply }).collect()
}

/// Returns whether the body contains the id. Many producers use the job's id as the message id, but not all, and a reply must not present a
/// message id as the job's id.
fn mentions(body: &[u8], id: JobId) -> bool {
    let (text, bytes) = (id.to_string(), id.as_uuid());
    contains(body, text.as_bytes()) || contains(body, bytes.as_bytes())
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190a5b8-7c00-7000-8000-000000000001";

    #[test]
    fn a_body_that_ends_early_mentions_its_job_as_text_or_bytes() {
        let id: JobId = ID.parse().unwrap();
        let text = format!(r#"{{"version": 1, "job_id": "{ID}", "prog"#);
        assert!(mentions(text.as_bytes(), id));
        assert!(!mentions(&text.as_bytes()[..40], id));
        assert!(mentions(&[&[0x82, 0xc4, 16], &id.as_uuid().as_bytes()[..]].concat(), id));
        assert!(!mentions(b"", id));
        assert!(!mentions(text.as_bytes(), JobId::new()), "a message's own id is not its job's");
    }

    #[test]
    fn jobs_are_found_by_their_heads_in_bodies_of_any_version() {
        let body = format!(r#"[{{"version": 9, "job_id": "{ID}", "reply": "anna"}}, {{"job_id": 7}}, {{}}]"#);
        let anna = Salvaged { job_id: Some(ID.parse().unwrap()), reply: Some("anna".parse().unwrap()) };
        assert_eq!(jobs_in(Encoding::Json, body.as_bytes()), [anna]);
        assert_eq!(jobs_in(Encoding::MessagePack, body.as_bytes()), []);
    }
}
