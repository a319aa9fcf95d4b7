//! Follows the approvals of machines: annotations, and the command's in the state directory.

use std::sync::Arc;
use std::time::Instant;

use common::schedule::Schedule;
use files::shared_watch::SharedWatch;
use files::watch::listing;
use model::access::BootRules;
use model::access::approval::{
    ApprovalGrants, Approvals, ApprovedObject, BoundApprovals, Ended, Subject, read_grants,
};
use model::access::machine::Window;
use model::history::History;
use model::inputs::Inputs;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::MachineApprovals;
use crate::serving::tokens::named_machines::MachineTokens;
use crate::store::state_directory::{StateDirectory, StateError};

/// Reads who is approved, and ends approvals.
pub(crate) struct ApprovalReconciler {
    approvals: Arc<MachineApprovals>,
    /// Directory with the command's approvals, if there is one.
    state: Option<StateDirectory>,
    window: Window,
    history: History,
    given: Approvals,
    /// Ended approvals on disk, and what others are for, once they were read.
    stored: Option<(Ended, BoundApprovals)>,
    /// Reason why they cannot be read. They are not overwritten then, and what was approved before counts as ended.
    unreadable: Option<String>,
    /// The command's approvals change, one ends, or something could not be written.
    pub(in crate::serving) schedule: Schedule,
}

impl ApprovalReconciler {
    /// Creates a reconciler that has not looked yet. Requests are judged by `approvals`.
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
            schedule: Schedule::default(),
        }
    }

    /// Follows the command's approvals, if there is a directory for them.
    pub(crate) fn follow(&mut self, watch: &mut SharedWatch) {
        if let Some(state) = &self.state {
            let directory = state.approvals_path();
            self.schedule = Schedule::of(watch.notify_of(move || Some(listing(&directory))));
        }
    }

    /// Judges requests by the present approvals from this call on, those of machines with an object by its identity.
    /// Returns faults for administrators, one line each. It may block.
    pub(in crate::serving) fn reconcile(
        &mut self,
        inputs: &Inputs,
        rules: &BootRules,
        tokens: Option<&MachineTokens>,
    ) -> Vec<String> {
        self.schedule.wait(None);
        let of_machine = || inputs.machines.values().any(|machine| machine.needs_approval());
        if !rules.any_needs_approval() && !of_machine() {
            return Vec::new();
        }
        let (mut asked, mut attention) = read_grants(&inputs.pools, &inputs.machines);
        let by_commands = self.by_commands(&mut attention);
        for (subject, at) in &by_commands {
            let known = asked.entry(subject.clone()).or_insert(*at);
            *known = (*at).max(*known);
        }
        self.load(&asked);
        let recorded = tokens.map(MachineTokens::recorded_approvals).unwrap_or_default();
        self.given.bind(recorded, &asked);
        let now = self.approvals.now();
        let object = |subject: &Subject| match (subject, tokens) {
            (Subject::Named(name), Some(tokens)) => tokens.approved_object(name, &inputs.machines),
            _ => ApprovedObject::Unknown,
        };
        let next = self.given.following(&asked, object, self.window, now);
        self.report_approved(&next);
        self.given = next;
        // What an approval is for is stored first. If that fails, it is reported, and the approval counts.
        if let Err(error) = self.store(&by_commands) {
            attention.push(error.to_string());
            self.schedule.retry();
        }
        let end = self.given.next_end().and_then(|up| self.approvals.instant(up));
        if let Some(end) = end {
            self.schedule.wait_at_most(end.saturating_duration_since(Instant::now()));
        }
        self.approvals.give(self.given.clone());
        attention.extend(self.unreadable.clone());
        attention
    }

    /// Approvals that the command has left.
    fn by_commands(&mut self, attention: &mut Vec<String>) -> ApprovalGrants {
        let Some(state) = &self.state else { return ApprovalGrants::new() };
        if let Err(error) = state.make_approvals_path() {
            attention.push(error.to_string());
        }
        match state.approved_by_commands() {
            Ok((grants, faults)) => {
                attention.extend(faults.iter().map(ToString::to_string));
                grants
            }
            Err(error) => {
                attention.push(error.to_string());
                self.schedule.retry();
                ApprovalGrants::new()
            }
        }
    }

    /// Reads what ended in an earlier process.
    fn load(&mut self, asked: &ApprovalGrants) {
        let Some(state) = self.state.as_ref().filter(|_| self.stored.is_none()) else { return };
        let stored = state.ended_approvals().and_then(|it| Ok((it, state.bound_approvals()?)));
        let (ended, bound) = match stored {
            Ok(stored) => {
                self.stored = Some(stored.clone());
                self.unreadable = None;
                stored
            }
            Err(error) => {
                let is_first = self.unreadable.replace(error.to_string()).is_none();
                if !is_first {
                    return;
                }
                (asked.clone(), BoundApprovals::new())
            }
        };
        self.given = Approvals::after(ended, bound);
    }

    /// Stores what has ended, and then removes the command's approvals that have.
    fn store(&mut self, by_commands: &ApprovalGrants) -> Result<(), StateError> {
        let (Some(state), Some(stored)) = (&self.state, &mut self.stored) else { return Ok(()) };
        let (ended, bound) = (self.given.ended(), self.given.bound());
        if stored.0 != *ended {
            state.write_ended_approvals(ended)?;
            stored.0.clone_from(ended);
        }
        if stored.1 != *bound {
            state.update_bound_approvals(&stored.1, bound)?;
            stored.1.clone_from(bound);
        }
        for (subject, at) in by_commands {
            if let Some(ended) = ended.get(subject).filter(|ended| at <= *ended) {
                state.discard_approval(subject, *ended)?;
            }
        }
        Ok(())
    }

    fn report_approved(&self, next: &Approvals) {
        for (subject, open) in next.new_since(&self.given) {
            let until = open.until.wall.format(&Rfc3339).unwrap_or_default();
            tracing::info!(machine = %subject, until, "a machine is approved");
            self.history.note(format!("{subject}: approved"), OffsetDateTime::now_utc());
        }
    }
}
