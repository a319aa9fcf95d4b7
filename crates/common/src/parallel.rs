//! Work on all processors, for changes of many files or pools.
//!
//! The crate rayon is not used, because it would keep an idle pool of threads for work that occurs a few times a day;
//! the standard library's scoped threads end with the work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::sync::lock;

/// Number of threads that wait for the disk.
const WRITERS: usize = 16;

/// Number of processors of this process, asked for once: the answer is read from several files.
pub fn processors() -> usize {
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *PROCESSORS
}

/// Applies `work` to all `jobs` on as many threads as there are processors; the results are in the order of `jobs`.
pub fn map<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    map_on(processors(), jobs, work)
}

/// The same for work that waits for the disk, which writes several files at once.
pub fn map_writes<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    map_on(WRITERS, jobs, work)
}

fn map_on<J: Sync, R: Send>(threads: usize, jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = threads.min(jobs.len());
    if threads < 2 {
        return jobs.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        jobs.get(index).map(|job| (index, job))
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, job)) = take() {
                    let result = work(job);
                    lock(&results).push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_their_jobs() {
        let jobs: Vec<u32> = (0..1000).collect();
        assert_eq!(
            super::map(&jobs, |job| job * 2),
            (0..1000).map(|job| job * 2).collect::<Vec<_>>()
        );
        assert_eq!(super::map(&[7], |job| job + 1), [8]);
    }
}
