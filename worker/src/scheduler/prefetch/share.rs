//! Divides a number of bytes among queues.

/// Returns how many messages each queue may have so that all together stay within `bytes`. Queues that want little get it, and the others
/// share the rest, idle queues last. Each queue gets at least one message.
pub(super) fn share_out(bytes: f64, wanted: &[f64], sizes: &[f64], idle: &[bool]) -> Vec<f64> {
    let firsts: f64 = sizes.iter().sum();
    let mut rest = (bytes - firsts).max(0.0);
    let more = |index: usize| (wanted[index] - 1.0).max(0.0) * sizes[index];
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| idle[*a].cmp(&idle[*b]).then(more(*a).total_cmp(&more(*b))));
    let mut shares = vec![1.0; wanted.len()];
    for (turn, index) in order.iter().enumerate() {
        let equals = order[turn..].iter().filter(|other| idle[**other] == idle[*index]).count();
        let fair = rest / equals as f64;
        let messages = (more(*index).min(fair) / sizes[*index]).floor();
        shares[*index] += messages;
        rest -= messages * sizes[*index];
    }
    shares
}
