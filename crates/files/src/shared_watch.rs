//! One watch of directories for all that follow files in them: one set of notifications, and one look without them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;

use super::watch::{DirectoryWatch, Scanned};

type Scan = Box<dyn FnMut(&dyn Fn(&Path) -> bool) -> Scanned + Send>;

pub struct SharedWatch {
    directories: Vec<PathBuf>,
    scans: Vec<Scan>,
}

impl SharedWatch {
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, scans: Vec::new() }
    }

    /// Calls `scan` at each look, as [`DirectoryWatch::scan`] does. It may block, and has no links that lead outside.
    pub fn add(&mut self, scan: impl FnMut(&dyn Fn(&Path) -> bool) -> Scanned + Send + 'static) {
        self.scans.push(Box::new(scan));
    }

    /// Notifies when `state` differs from that of the look before, or is `None`: it may change without a difference.
    /// The first look is the present one.
    pub fn notify_of<T: PartialEq + Send + 'static>(
        &mut self,
        mut state: impl FnMut() -> Option<T> + Send + 'static,
    ) -> Arc<Notify> {
        let changed = Arc::new(Notify::new());
        let (notify, mut seen) = (Arc::clone(&changed), state());
        self.add(move |_| {
            let now = state();
            if now.is_none() || now != seen {
                notify.notify_one();
            }
            seen = now;
            Scanned::SETTLED
        });
        changed
    }

    /// Looks after each change, forever.
    pub async fn follow(mut self) {
        let watch = DirectoryWatch::new(self.directories);
        let scan = move |being_written: &dyn Fn(&Path) -> bool| {
            let mut all = Scanned::SETTLED;
            for scan in &mut self.scans {
                let Scanned { is_unsettled, again_in, outside: _ } = scan(being_written);
                all.is_unsettled |= is_unsettled;
                if let Some(wait) = again_in {
                    all.again_in(wait);
                }
            }
            all
        };
        watch.follow(scan).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_follower_is_notified_of_its_own_file_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
        fs::write(&a, "1").unwrap();
        let mut watch = SharedWatch::new(vec![directory.path().to_owned()]);
        let text = |path: PathBuf| move || Some(fs::read(&path).ok());
        let (of_a, of_b) = (watch.notify_of(text(a.clone())), watch.notify_of(text(b.clone())));
        let task = tokio::spawn(watch.follow());
        fs::write(&b, "1").unwrap();
        let notified = |changed: Arc<Notify>, wait| async move {
            tokio::time::timeout(wait, changed.notified()).await.is_ok()
        };
        let long = Duration::from_secs(180);
        assert!(notified(of_b, long).await);
        // The look that found it has found nothing else.
        assert!(!notified(Arc::clone(&of_a), Duration::ZERO).await);
        fs::write(&a, "22").unwrap();
        assert!(notified(of_a, long).await);
        task.abort();
    }
}
