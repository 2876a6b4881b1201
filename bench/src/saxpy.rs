//! The work: y ← a·x + y over a few floats. Each job has other numbers, so that a swapped answer is noticed.

use anyhow::{Context as _, ensure};
use gpufleet::{
    Job,
    schema::{ClientName, Encoding, JobId, OneOrMany},
};

/// The default number of floats in a job. It is tiny, so that the round trip is what is measured.
pub const FLOATS: usize = 64;
const A: f32 = 2.0;

fn x(job: usize, floats: usize) -> Vec<f32> {
    (0..floats).map(|i| (job * 7 + i) as f32).collect()
}

fn y(job: usize, floats: usize) -> Vec<f32> {
    (0..floats).map(|i| (job + 3 * i) as f32).collect()
}

/// Returns the job with this number. Each call makes a new job with a new id.
pub fn job(number: usize, floats: usize) -> Job {
    Job::catalog("saxpy").scalar("a", f64::from(A)).input("x", &x(number, floats)).input("y", &y(number, floats))
}

/// Returns a job of the default size as the bytes that gpufleet's client would publish for it.
pub fn message(number: usize, client: &ClientName) -> anyhow::Result<(JobId, Vec<u8>)> {
    let mut task = job(number, FLOATS).build().context("the benchmark's job is wrong")?.task;
    task.reply = Some(client.clone());
    // A time of submission of realistic length.
    task.submitted_ms = Some(1_700_000_000_000);
    Ok((task.job_id, Encoding::MessagePack.encode_tasks(&OneOrMany::One(task))?))
}

pub fn message_body(number: usize, client: &ClientName) -> anyhow::Result<Vec<u8>> {
    Ok(message(number, client)?.1)
}

/// Checks that the result is that of the job with this number. All numbers in it are small integers, so they are exact.
pub fn check(number: usize, floats: usize, found: &[f32]) -> anyhow::Result<()> {
    let expected: Vec<f32> = x(number, floats).iter().zip(y(number, floats)).map(|(x, y)| A.mul_add(*x, y)).collect();
    ensure!(found == expected, "job {number} was answered with {found:?} in place of {expected:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_valid_and_has_numbers_of_its_own() {
        let client = "bench".parse().unwrap();
        let bodies: Vec<_> = [0, 1, 5000].map(|number| message_body(number, &client).unwrap()).into();
        assert!(bodies.iter().all(|body| body.len() > 2 * FLOATS * size_of::<f32>()));
        assert_ne!(x(0, FLOATS), x(1, FLOATS));
    }

    #[test]
    fn the_numbers_stay_exact_in_f32() {
        let floats = 1024.max(FLOATS);
        let largest = A as usize * (1_000_000 * 7 + floats) + 1_000_000 + 3 * floats;
        assert!(largest < 1 << f32::MANTISSA_DIGITS, "{largest}");
    }
}
