//! The time in a job's id. The id and this time are the job's primary key.

use chrono::{DateTime, Utc};
use gpufleet_schema::JobId;

/// Returns the time in the id. Only a UUIDv7 has one.
pub fn time_in_id(job_id: JobId) -> Option<DateTime<Utc>> {
    job_id.made_ms().and_then(DateTime::from_timestamp_millis)
}

/// Returns the second half of a job's primary key, by which the table is partitioned. `job_keys` may override it for a job.
pub fn id_at(job_id: JobId) -> DateTime<Utc> {
    time_in_id(job_id).unwrap_or(DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_carries_the_present() {
        let age = Utc::now() - time_in_id(JobId::new()).expect("JobId::new makes UUIDv7");
        assert!(age.num_seconds().abs() < 60, "{age}");
    }

    #[test]
    fn an_id_of_another_kind_carries_none() {
        for text in [
            "4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-7fff-bfff-ffffffffffff",
        ] {
            let job_id: JobId = text.parse().unwrap();
            assert_eq!(time_in_id(job_id), None, "{text}");
            assert_eq!(id_at(job_id), DateTime::UNIX_EPOCH);
        }
    }
}
