//! Approvals of machines, in the state directory.
//!
//! ```text
//! approvals/NAME, approvals/POOL=ADDRESS   when a command approved a machine
//! approvals.json                           approvals that have ended
//! approved-objects.json                    what the approvals of machines with an object are for, until they end
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use files::bounded::{self, entries_if_there, if_there, read_if_there, remove_if_there};
use files::error::FileError;
use files::replace::{self, PRIVATE};
use model::access::approval::{ApprovalGrants, BoundApprovals, Ended, Subject, parse_granted_at};
use model::access::machine::{BoundApproval, Identity};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::state_directory::StateDirectory;
use super::state_error::StateError;

/// Maximum size of the approval of a command, in bytes.
const MAX_APPROVAL_BYTES: u64 = 256;

impl StateDirectory {
    /// Directory with the approvals of commands.
    pub(crate) fn approvals_path(&self) -> PathBuf {
        self.path().join("approvals")
    }

    fn ended_path(&self) -> PathBuf {
        self.path().join("approvals.json")
    }

    /// Creates the directory for the approvals of commands, if it is missing.
    pub(crate) fn make_approvals_path(&self) -> Result<(), StateError> {
        Ok(replace::create_directory(&self.approvals_path(), self.reader())?)
    }

    /// Leaves an approval for a server. One that is started later compares the object with `identity`.
    pub(crate) fn approve(
        &self,
        subject: &Subject,
        at: OffsetDateTime,
        identity: Option<Identity>,
    ) -> Result<(), StateError> {
        self.make_approvals_path()?;
        let _lock = self.lock()?;
        if let Some(identity) = identity {
            let mut bound = self.bound_approvals()?;
            bound.insert(subject.clone(), BoundApproval { at, identity });
            self.write_bound_approvals(&bound)?;
        }
        let path = self.approvals_path().join(subject.file_name());
        let text = at.format(&Rfc3339).map_err(|error| FileError::other(&path, error))?;
        Ok(self.replace(&path, text.as_bytes(), PRIVATE)?)
    }

    /// The approvals of commands, and the faults of those that are not understood.
    pub(crate) fn approved_by_commands(
        &self,
    ) -> Result<(ApprovalGrants, Vec<FileError>), StateError> {
        let (mut grants, mut faults) = (ApprovalGrants::new(), Vec::new());
        for path in entries_if_there(&self.approvals_path())? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(subject) = Subject::of_file_name(name) else { continue };
            match granted_at(&path) {
                Ok(at) => grants.extend(at.map(|at| (subject, at))),
                Err(error) => faults.push(error),
            }
        }
        Ok((grants, faults))
    }

    /// Removes the approval of a command that has ended, unless a command has given another one meanwhile.
    pub(crate) fn discard_approval(
        &self,
        subject: &Subject,
        ended: OffsetDateTime,
    ) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let path = self.approvals_path().join(subject.file_name());
        if granted_at(&path)?.is_some_and(|at| at <= ended) {
            remove_if_there(&path)?;
        }
        Ok(())
    }

    /// Approvals that have ended, of all origins.
    pub(crate) fn ended_approvals(&self) -> Result<Ended, StateError> {
        let path = self.ended_path();
        let Some(json) = read_if_there(&path)? else { return Ok(Ended::new()) };
        let texts: BTreeMap<String, String> =
            serde_json::from_slice(&json).map_err(FileError::at(&path))?;
        let ended = texts.iter().map(|(name, at)| {
            let subject = Subject::of_file_name(name)
                .ok_or_else(|| format!("{name:?} does not name a machine"))?;
            Ok((subject, parse_granted_at(at)?))
        });
        let ended: Result<_, String> = ended.collect();
        Ok(ended.map_err(|reason| FileError::other(&path, reason))?)
    }

    fn bound_path(&self) -> PathBuf {
        self.path().join("approved-objects.json")
    }

    /// Objects that the approvals of machines with an object are for.
    pub(crate) fn bound_approvals(&self) -> Result<BoundApprovals, StateError> {
        let path = self.bound_path();
        let Some(json) = read_if_there(&path)? else { return Ok(BoundApprovals::new()) };
        let named: BTreeMap<String, BoundApproval> =
            serde_json::from_slice(&json).map_err(FileError::at(&path))?;
        let subject = |(name, bound): (String, _)| (Subject::Named(name.into()), bound);
        Ok(named.into_iter().map(subject).collect())
    }

    /// Stores what approvals are for, as the server knows it. What a command has stored since `before`, which the server has
    /// not read, stays, unless the file is damaged: the server knows what else it had. It is on disk when this returns.
    pub(crate) fn update_bound_approvals(
        &self,
        before: &BoundApprovals,
        now: &BoundApprovals,
    ) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let mut bound = match self.bound_approvals() {
            Err(StateError::File(error)) if error.is_of_contents() => before.clone(),
            read => read?,
        };
        let is_new = |subject: &Subject, bound: &BoundApproval| {
            before.get(subject) != Some(bound)
                && now.get(subject).is_none_or(|known| known.at < bound.at)
        };
        bound.retain(|subject, bound| is_new(subject, bound));
        for (subject, known) in now {
            bound.entry(subject.clone()).or_insert_with(|| known.clone());
        }
        self.write_bound_approvals(&bound)
    }

    /// The caller holds the lock.
    fn write_bound_approvals(&self, bound: &BoundApprovals) -> Result<(), StateError> {
        let named: BTreeMap<_, _> =
            bound.iter().map(|(subject, bound)| (subject.file_name(), bound)).collect();
        self.write_json(&self.bound_path(), &named)
    }

    /// Stores the approvals that have ended. They are on disk when this returns.
    pub(crate) fn write_ended_approvals(&self, ended: &Ended) -> Result<(), StateError> {
        // Each was read as a time of this format.
        let text = |(subject, at): (&Subject, &OffsetDateTime)| {
            Some((subject.file_name(), at.format(&Rfc3339).ok()?))
        };
        let texts: BTreeMap<_, _> = ended.iter().filter_map(text).collect();
        self.write_json(&self.ended_path(), &texts)
    }
}

/// Time in the approval of a command, if it is there.
fn granted_at(path: &Path) -> Result<Option<OffsetDateTime>, FileError> {
    let Some(text) = if_there(path, bounded::read_start(path, MAX_APPROVAL_BYTES))? else {
        return Ok(None);
    };
    let at = parse_granted_at(String::from_utf8_lossy(&text).trim());
    at.map(Some).map_err(|reason| FileError::other(path, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_has_stored_stays_until_the_server_knows_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let subject = |name: &str| Subject::Named(name.into());
        let bound = |second: i64, object: &str| BoundApproval {
            at: OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second),
            identity: serde_json::from_value(object.into()).unwrap(),
        };
        let mut before = BoundApprovals::new();
        let mut now = BoundApprovals::from([(subject("a"), bound(1, "a"))]);
        state.approve(&subject("b"), bound(2, "b").at, Some(bound(2, "b").identity)).unwrap();
        let update = |before: &BoundApprovals, now: &BoundApprovals| {
            state.update_bound_approvals(before, now).unwrap();
            state.bound_approvals().unwrap()
        };
        let both = [(subject("a"), bound(1, "a")), (subject("b"), bound(2, "b"))];
        assert_eq!(update(&before, &now), both.into());
        // It was read, and has ended.
        before.extend([(subject("a"), bound(1, "a")), (subject("b"), bound(2, "b"))]);
        assert_eq!(update(&before, &now), now);
        // Another approval of the same machine.
        state.approve(&subject("a"), bound(3, "c").at, Some(bound(3, "c").identity)).unwrap();
        assert_eq!(update(&before, &now)[&subject("a")], bound(3, "c"));
        now.insert(subject("a"), bound(3, "d"));
        assert_eq!(update(&before, &now), now, "the server saw the object that it is for");
        for damaged in ["", "{\"a\":"] {
            std::fs::write(state.bound_path(), damaged).unwrap();
            state.bound_approvals().unwrap_err();
            assert_eq!(update(&now, &now), now, "{damaged:?}");
        }
    }
}
