//! Log of recent changes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

/// Maximum number of remembered changes; the log has all.
const MAX_CHANGES: usize = 200;

/// A change of the served state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Change {
    /// Time of the change.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Description in one line.
    pub what: String,
}

/// Recent changes, shared by the server's parts and the page.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<HistoryState>>);

#[derive(Debug, Default)]
struct HistoryState {
    changes: VecDeque<Change>,
    /// Number of earlier changes.
    older: u64,
}

impl History {
    /// Records a change.
    pub fn note(&self, what: String, at: OffsetDateTime) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.changes.len() == MAX_CHANGES {
            noted.changes.pop_back();
            noted.older += 1;
        }
        noted.changes.push_front(Change { at, what });
    }

    /// A counter of changes.
    pub fn count(&self) -> u64 {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.older + noted.changes.len() as u64
    }

    /// All remembered changes, the latest first, and the number of earlier ones.
    pub fn changes(&self) -> (Vec<Change>, u64) {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (noted.changes.iter().cloned().collect(), noted.older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_changes_are_remembered() {
        let history = History::default();
        for number in 0..1_000 {
            history.note(number.to_string(), OffsetDateTime::UNIX_EPOCH);
        }
        let (changes, older) = history.changes();
        let whats: Vec<_> = changes.into_iter().map(|change| change.what).collect();
        assert_eq!(
            (whats.len(), &*whats[0], &*whats[MAX_CHANGES - 1]),
            (MAX_CHANGES, "999", "800")
        );
        assert_eq!(older, 800);
    }
}
