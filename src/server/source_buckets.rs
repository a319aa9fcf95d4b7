//! Counts events by source in buckets that refill, so that one source cannot cause too many.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use common::sync::lock;
use lru::LruCache;
use tokio::time::Instant;

use super::connections::connection_limiter::Source;

/// Number of sources that are remembered; the least recent one is dropped.
const SOURCES: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Recent events of each source.
#[derive(Debug)]
pub(super) struct SourceBuckets {
    /// Number of events that a source has at once.
    burst: u32,
    /// Time after which it has another one.
    refill: Duration,
    buckets: Mutex<LruCache<Source, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    used: u32,
    since: Instant,
}

impl SourceBuckets {
    pub(super) fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill, buckets: Mutex::new(LruCache::new(SOURCES)) }
    }

    pub(super) fn is_exhausted(&self, source: Source, now: Instant) -> bool {
        let buckets = lock(&self.buckets);
        buckets.peek(&source).is_some_and(|bucket| self.refilled(*bucket, now).used >= self.burst)
    }

    pub(super) fn count(&self, source: Source, now: Instant) {
        let mut buckets = lock(&self.buckets);
        let bucket = buckets.get_or_insert_mut(source, || Bucket { used: 0, since: now });
        *bucket = self.refilled(*bucket, now);
        bucket.used = (bucket.used + 1).min(self.burst);
    }

    fn refilled(&self, bucket: Bucket, now: Instant) -> Bucket {
        let passed = now.saturating_duration_since(bucket.since);
        let refills = u32::try_from(passed.as_nanos() / self.refill.as_nanos()).unwrap_or(u32::MAX);
        Bucket {
            used: bucket.used.saturating_sub(refills),
            since: if refills >= bucket.used { now } else { bucket.since + self.refill * refills },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const BURST: u32 = 100;
    const REFILL: Duration = Duration::from_secs(1);

    #[test]
    fn a_source_has_so_many_attempts_and_gets_them_back() {
        let attempts = SourceBuckets::new(BURST, REFILL);
        let source = |text: &str| Source::from(text.parse::<SocketAddr>().unwrap());
        let (bad, good) = (source("192.0.2.1:1"), source("192.0.2.2:1"));
        let start = Instant::now();
        for _ in 0..BURST {
            assert!(!attempts.is_exhausted(bad, start));
            attempts.count(bad, start);
        }
        assert!(attempts.is_exhausted(bad, start) && !attempts.is_exhausted(good, start));
        let later = start + REFILL;
        assert!(!attempts.is_exhausted(bad, later));
        attempts.count(bad, later);
        assert!(attempts.is_exhausted(bad, later));
        // Attempts without a token left do not extend the wait.
        for _ in 0..1_000 {
            attempts.count(bad, later);
        }
        assert!(!attempts.is_exhausted(bad, later + REFILL));
        assert!(attempts.is_exhausted(source("192.0.2.1:2"), later), "a port is no other source");
        let long_after = later + REFILL * (BURST + 1);
        for _ in 0..BURST {
            assert!(!attempts.is_exhausted(bad, long_after));
            attempts.count(bad, long_after);
        }
        assert!(attempts.is_exhausted(bad, long_after));
    }

    #[test]
    fn sources_that_are_remembered_have_a_number() {
        let attempts = SourceBuckets::new(BURST, REFILL);
        let now = Instant::now();
        for number in 0..20_000_u32 {
            attempts.count(Source::V4(number.into()), now);
        }
        assert_eq!(attempts.buckets.lock().unwrap().len(), SOURCES.get());
    }
}
