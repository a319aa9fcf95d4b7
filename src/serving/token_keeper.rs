//! The tokens of `serve`: kept in order while the server runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use model::access::rotation::RotationPolicy;
use model::access::{AccessMode, Records};
use time::OffsetDateTime;

use crate::files::stamp::FileStamp;
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::store::state_directory::StateDirectory;
use crate::store::token_files::TokensReconciled;

/// Waits between two looks: a clock may be set.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Wait after a look that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the tokens and who carries them in order. The process may end at any moment: whatever is done is
/// whole at every step.
pub(crate) struct TokenKeeper {
    state: StateDirectory,
    policy: RotationPolicy,
    /// Watches the directory, once somebody waits for a change of it.
    files: Option<DirectoryWatch>,
    /// Stamps of the files before the last look.
    seen: Option<Vec<(PathBuf, FileStamp)>>,
    /// When something is due by itself, if anything is.
    requeue_at: Option<OffsetDateTime>,
}

/// What a look at the tokens came to.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// What is known of them, `None` if that cannot be told.
    pub(super) records: Option<Records>,
    /// What an administrator should know, one line each.
    pub(super) attention: Vec<String>,
}

impl TokenKeeper {
    /// A keeper that has not looked yet.
    pub(crate) fn new(state: StateDirectory, policy: RotationPolicy) -> Self {
        Self { state, policy, files: None, seen: None, requeue_at: None }
    }

    /// Does what is due for pools with these modes. `accept` is given the tokens that pointer configs are
    /// about to carry. It may block.
    pub(super) fn keep(
        &mut self,
        wanted: &BTreeMap<String, AccessMode>,
        accept: &mut dyn FnMut(&Records),
    ) -> Kept {
        let now = OffsetDateTime::now_utc();
        // Taken before the look: what is changed meanwhile is seen by the next one.
        self.seen = self.state.token_stamps(SystemTime::now());
        match self.state.reconcile_tokens(wanted, &self.policy, now, accept) {
            Ok(TokensReconciled { done, attention, requeue_at, records }) => {
                for reason in &done {
                    tracing::info!("tokens: {reason}");
                }
                self.requeue_at = requeue_at;
                Kept { records: Some(records), attention }
            }
            Err(error) => {
                // It may heal by itself, with no change of these files: a disk has room again.
                self.requeue_at = Some(now + RETRY);
                Kept { records: self.unwritten(wanted, now), attention: vec![error.to_string()] }
            }
        }
    }

    /// What is known where nothing can be written: a disk that is full opens no pool.
    fn unwritten(
        &self,
        wanted: &BTreeMap<String, AccessMode>,
        now: OffsetDateTime,
    ) -> Option<Records> {
        let standing = self.state.standing(wanted, now).or_else(|_| self.state.records());
        standing.ok().filter(|records| !records.tokens.is_empty())
    }

    /// Waits until the tokens are to be looked at again: somebody has changed their files, or something
    /// is due. For ever without a keeper. It may be dropped at any time.
    pub(super) async fn due(keeper: Option<&mut Self>) {
        let Some(keeper) = keeper else { return std::future::pending().await };
        let directory = keeper.state.path();
        let files =
            keeper.files.get_or_insert_with(|| DirectoryWatch::new(vec![directory.to_owned()]));
        loop {
            let left =
                keeper.requeue_at.map(|at| Duration::try_from(at - OffsetDateTime::now_utc()));
            let wait = left.and_then(Result::ok).unwrap_or(LONGEST_WAIT);
            tokio::select! {
                () = files.changed() => {}
                () = tokio::time::sleep(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)) => {}
            }
            let mut is_due = keeper.requeue_at.is_some_and(|at| at <= OffsetDateTime::now_utc());
            tokio::task::block_in_place(|| {
                files.scan(|_| {
                    let stamps = keeper.state.token_stamps(SystemTime::now());
                    is_due |= stamps.is_none() || stamps != keeper.seen;
                    Scanned::Settled
                });
            });
            if is_due {
                return;
            }
        }
    }
}
