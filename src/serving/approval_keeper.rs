//! Follows the approvals of machines: annotations, and the command's in the state directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::access::BootRules;
use model::access::approval::{Approvals, Ended, Yeses, yeses};
use model::access::machine::Window;
use model::inputs::Inputs;
use model::overview::History;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use super::approvals::MachineApprovals;
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::store::state_directory::{StateDirectory, StateError};

/// Wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Reads who is approved, and ends approvals.
pub(crate) struct ApprovalKeeper {
    approvals: Arc<MachineApprovals>,
    /// Directory with the command's approvals, if there is one.
    state: Option<StateDirectory>,
    window: Window,
    history: History,
    given: Approvals,
    /// Ended approvals on disk, once they were read.
    stored: Option<Ended>,
    /// Reason why they cannot be read. They are not overwritten then, and what was approved before counts as ended.
    unreadable: Option<String>,
    /// True if any machine needs approval.
    is_needed: bool,
    /// Watch of the command's approvals, created at the first wait.
    watch: Option<DirectoryWatch>,
    /// The command's approvals at the last look, with the time of their change.
    seen: BTreeMap<PathBuf, SystemTime>,
    retry_at: Option<Instant>,
}

impl ApprovalKeeper {
    /// Creates a keeper that has not looked yet. Requests are judged by `approvals`.
    pub(crate) fn new(
        approvals: Arc<MachineApprovals>,
        state: Option<StateDirectory>,
        window: Window,
        history: History,
    ) -> Self {
        Self {
            approvals,
            state,
            window,
            history,
            given: Approvals::default(),
            stored: None,
            unreadable: None,
            is_needed: false,
            watch: None,
            seen: BTreeMap::new(),
            retry_at: None,
        }
    }

    /// Judges requests by the present approvals from this call on. Returns faults for administrators, one line each. It
    /// may block.
    pub(super) fn keep(&mut self, inputs: &Inputs, rules: &BootRules) -> Vec<String> {
        self.retry_at = None;
        let of_machine = || inputs.machines.values().any(|machine| machine.needs_approval());
        self.is_needed = rules.any_needs_approval() || of_machine();
        if !self.is_needed {
            return Vec::new();
        }
        let (mut asked, mut attention) = yeses(&inputs.pools, &inputs.machines);
        let by_commands = self.by_commands(&mut attention);
        for (subject, at) in &by_commands {
            let known = asked.entry(subject.clone()).or_insert(*at);
            *known = (*at).max(*known);
        }
        self.load(&asked);
        let now = self.approvals.now();
        let next = self.given.following(&asked, self.window, now);
        self.tell_new(&next);
        self.given = next.clone();
        self.approvals.give(next);
        attention.extend(self.unreadable.clone());
        if let Err(error) = self.store(&by_commands) {
            attention.push(error.to_string());
            self.retry_at = Some(Instant::now() + RETRY);
        }
        attention
    }

    /// Approvals that the command has left.
    fn by_commands(&mut self, attention: &mut Vec<String>) -> Yeses {
        let Some(state) = &self.state else { return Yeses::new() };
        let directory = state.approvals_path();
        if let Err(error) = state.make_approvals_path() {
            attention.push(error.to_string());
        }
        self.seen = files_in(&directory);
        match state.approved_by_commands() {
            Ok((yeses, faults)) => {
                attention.extend(faults.iter().map(ToString::to_string));
                yeses
            }
            Err(error) => {
                attention.push(error.to_string());
                self.retry_at = Some(Instant::now() + RETRY);
                Yeses::new()
            }
        }
    }

    /// Reads what ended in an earlier process.
    fn load(&mut self, asked: &Yeses) {
        let Some(state) = self.state.as_ref().filter(|_| self.stored.is_none()) else { return };
        let ended = match state.ended_approvals() {
            Ok(ended) => {
                self.stored = Some(ended.clone());
                self.unreadable = None;
                ended
            }
            Err(error) => {
                let is_first = self.unreadable.replace(error.to_string()).is_none();
                if !is_first {
                    return;
                }
                asked.clone()
            }
        };
        self.given = Approvals::after(ended);
    }

    /// Stores what has ended, and then removes the command's approvals that have.
    fn store(&mut self, by_commands: &Yeses) -> Result<(), StateError> {
        let (Some(state), Some(stored)) = (&self.state, &mut self.stored) else { return Ok(()) };
        let ended = self.given.ended();
        if stored != ended {
            state.write_ended_approvals(ended)?;
            stored.clone_from(ended);
        }
        let is_over = |(subject, at): &(_, &OffsetDateTime)| {
            ended.get(*subject).is_some_and(|ended| *at <= ended)
        };
        for (subject, _) in by_commands.iter().filter(is_over) {
            state.forget_approval(subject)?;
        }
        Ok(())
    }

    fn tell_new(&self, next: &Approvals) {
        for (subject, open) in next.new_since(&self.given) {
            let until = open.until.wall.format(&Rfc3339).unwrap_or_default();
            tracing::info!(machine = %subject, until, "a machine is approved");
            self.history.note(format!("{subject}: approved"), OffsetDateTime::now_utc());
        }
    }

    /// Waits until the approvals must be looked at again: the command has given one, one ends, or something could not
    /// be written. Forever if no machine needs approval. It is cancel safe.
    pub(super) async fn due(keeper: Option<&mut Self>) {
        let Some(keeper) = keeper.filter(|it| it.is_needed) else {
            return std::future::pending().await;
        };
        let end = keeper.given.next_end().and_then(|up| keeper.approvals.instant(up));
        let at = [keeper.retry_at, end.map(Instant::from_std)].into_iter().flatten().min();
        tokio::select! {
            () = sleep_until(at) => {}
            () = keeper.given_by_command() => {}
        }
    }

    async fn given_by_command(&mut self) {
        let Self { watch, seen, state, .. } = self;
        let Some(state) = state else { return std::future::pending().await };
        let directory = state.approvals_path();
        let watch = watch.get_or_insert_with(|| DirectoryWatch::new(vec![directory.clone()]));
        let mut is_due = false;
        while !is_due {
            watch.changed().await;
            tokio::task::block_in_place(|| {
                watch.scan(|_| {
                    is_due = files_in(&directory) != *seen;
                    Scanned::Settled
                });
            });
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Files in a directory, with the time of their change.
fn files_in(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| Some((path.clone(), changed(&path)?))).collect()
}
