//! Waits between retries: each is twice as long as the one before, plus a random part, so that concurrent failures do
//! not retry at the same time.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// An endless sequence of waits.
#[derive(Debug)]
pub struct Backoff {
    limits: ExponentialBuilder,
    longest: Duration,
    waits: ExponentialBackoff,
}

impl Backoff {
    /// Waits from `first` up to `longest`, each with up to the same time added at random.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let limits = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .without_max_times()
            .with_jitter();
        Self { limits, longest, waits: limits.build() }
    }

    #[expect(clippy::should_implement_trait, reason = "an item is never absent")]
    pub fn next(&mut self) -> Duration {
        // Without a maximum number of retries the sequence is endless.
        self.waits.next().unwrap_or(self.longest)
    }

    /// Starts again with the first wait, after a success.
    pub fn reset(&mut self) {
        self.waits = self.limits.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew_after_a_success() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest);
        for round in 0..2 {
            let mut least = first;
            for wait in (0..200).map(|_| backoff.next()) {
                assert!((least..=2 * least).contains(&wait), "{round}: {wait:?}, not {least:?}");
                least = longest.min(2 * least);
            }
            backoff.reset();
        }
    }
}
