//! The only place that changes answers and access policy.
//!
//! ```text
//!  source ─────────── inputs ──┐
//!  cluster's secret ─ records ─┼─> Snapshot ─> tightened policy ─> answers ─> policy ─> pointer configs
//!  issuer's file ──── keys ────┤   (pure)
//!  state directory ── tokens ──┘
//! ```
//!
//! Each part comes by a channel that holds its newest state; one task receives all.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use common::schedule::Schedule;
use futures_util::future::OptionFuture;
use model::access::{AccessMode, BootRules, Modes, Policy, Records, SignedTokens, WantedModes};
use model::inputs::{Inputs, Missing};
use model::snapshot::{AccessRules, Snapshot, SnapshotParts};
use telemetry::faults::{self, Fault};
use time::OffsetDateTime;
use tokio::sync::watch;

use self::pointer_writer::PointerWriter;
use self::publish::{Published, Publisher};
use super::approvals::reconciler::ApprovalReconciler;
use super::tokens::machine_reconciler::MachineReconciler;
use super::tokens::named_machines::{MachineTokens, NamedMachines};
use super::tokens::reconciler::TokenReconciler;

/// Receives changes, and publishes the resulting snapshot.
pub(crate) struct Pipeline {
    rules: AccessRules,
    known: SnapshotParts,
    wanted: WantedModes,
    boot_rules: BootRules,
    local: LocalState,
    /// State of a directory until all of that is read: what a part of it lacks would be removed.
    unread: Option<LocalState>,
    publisher: Publisher,
    policy: Arc<ArcSwap<Policy>>,
    /// True if something has changed, and what a change leaves for later is not done.
    is_unfinished: bool,
}

/// State that this process manages: approvals, the contents of a state directory, and those of a cluster's machines.
#[derive(Default)]
pub(crate) struct LocalState {
    pub(crate) approvals: Option<ApprovalReconciler>,
    pub(crate) tokens: Option<TokenReconciler>,
    pub(crate) pointers: Option<PointerWriter>,
    pub(crate) machines: Option<MachineReconciler>,
    /// Machines with names, as requests use them.
    pub(crate) named: NamedMachines,
}

impl Pipeline {
    /// Creates a pipeline without inputs. `known` has the records of tokens of an earlier process, and the keys of
    /// another issuer. `local` of a directory is reconciled once all of that is read. Requests are judged by `policy`.
    pub(crate) fn new(
        rules: AccessRules,
        known: SnapshotParts,
        local: LocalState,
        policy: Arc<ArcSwap<Policy>>,
        publisher: Publisher,
    ) -> Self {
        let is_directory = local.tokens.is_some();
        let (unread, local) =
            if is_directory { (Some(local), LocalState::default()) } else { (None, local) };
        Self {
            rules,
            known,
            wanted: WantedModes::default(),
            boot_rules: BootRules::default(),
            local,
            unread,
            publisher,
            policy,
            is_unfinished: false,
        }
    }

    /// Receives the newest state of each part from its source, `None` before it was read, forever.
    pub(crate) async fn run(
        mut self,
        mut inputs: watch::Receiver<Option<Inputs>>,
        mut records: watch::Receiver<Option<Records>>,
        mut keys: watch::Receiver<Option<SignedTokens>>,
    ) {
        loop {
            if self.is_unfinished {
                tokio::task::block_in_place(|| self.finish());
            }
            let LocalState { approvals, tokens, pointers, machines, .. } = &self.local;
            // A sender that is gone sends nothing more.
            tokio::select! {
                Ok(()) = inputs.changed() => {
                    let inputs = inputs.borrow_and_update().clone();
                    tokio::task::block_in_place(|| inputs.map(|it| self.take_inputs(it)));
                }
                Ok(()) = records.changed() => {
                    let records = records.borrow_and_update().clone();
                    tokio::task::block_in_place(|| records.map(|it| self.take_records(it)));
                }
                Ok(()) = keys.changed() => {
                    let keys = keys.borrow_and_update().clone();
                    tokio::task::block_in_place(|| keys.map(|it| self.take_keys(it)));
                }
                Some(()) = due(tokens.as_ref().map(|it| &it.schedule)) => {
                    tokio::task::block_in_place(|| self.reconcile_tokens());
                }
                Some(()) = due(machines.as_ref().map(|it| &it.schedule)) => {
                    tokio::task::block_in_place(|| {
                        self.reconcile_machines();
                        // An approval is for a token in one arming.
                        self.reconcile_approvals();
                        self.apply(false);
                    });
                }
                Some(()) = due(approvals.as_ref().map(|it| &it.schedule)) => {
                    tokio::task::block_in_place(|| self.reconcile_approvals());
                }
                Some(()) = due(pointers.as_ref().map(|it| &it.schedule)) => {
                    tokio::task::block_in_place(|| self.write_pointers());
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Serves `inputs` from this call on. Their pointer configs are written once the pipeline runs: a restart with a
    /// thousand pools answers first.
    pub(crate) fn take_inputs(&mut self, inputs: Inputs) {
        if !inputs.is_partial
            && let Some(local) = self.unread.take()
        {
            self.local = local;
            // What a part says is read again with the whole.
            self.wanted = WantedModes::default();
        }
        self.report_missing(&inputs.missing);
        let known = self.known.inputs.replace(inputs);
        let inputs = self.known.inputs.as_ref();
        // Most changes, such as of a registry CA, decide on no access.
        if !known.zip(inputs).is_some_and(|(known, inputs)| inputs.has_same_access(&known)) {
            self.reconcile_machines();
            self.read_wanted();
        }
        self.apply(true);
    }

    /// Reports objects that are missing: machines get the last good answers meanwhile.
    fn report_missing(&self, missing: &Missing) {
        let lines: Vec<_> = missing.reports.iter().map(ToString::to_string).collect();
        self.degrade(faults::MANIFESTS, &lines);
    }

    /// Reconciles the tokens of machines with their objects, if this process manages them. A new token is accepted once
    /// the policy that follows is in force.
    fn reconcile_machines(&mut self) {
        let Self { local, known, .. } = self;
        let Some(inputs) = &known.inputs else { return };
        if let Some(overlays) = &local.named.overlays {
            overlays.take(&inputs.machines);
        }
        if let Some(MachineTokens::Cluster(tokens)) = &local.named.tokens {
            known.machines = tokens.update(&inputs.machines, &inputs.machine_states);
        }
        let Some(reconciler) = &mut local.machines else { return };
        let (machines, attention) = reconciler.reconcile(&inputs.machines, &inputs.missing);
        known.machines = machines;
        self.degrade(faults::MACHINES, &attention);
    }

    /// Reads who is approved, before the rules are in force by which machines need it.
    fn reconcile_approvals(&mut self) {
        let Self { local, known, boot_rules, .. } = self;
        let (Some(reconciler), Some(inputs)) = (&mut local.approvals, &known.inputs) else {
            return;
        };
        let failed = reconciler.reconcile(inputs, boot_rules, local.named.tokens.as_ref());
        self.degrade(faults::APPROVALS, &failed);
    }

    /// Uses these records from this call on.
    fn take_records(&mut self, records: Records) {
        if self.learn(records) {
            self.read_wanted();
            self.apply(false);
        }
    }

    /// Accepts tokens signed by these keys from this call on.
    fn take_keys(&mut self, keys: SignedTokens) {
        self.known.signed = Some(keys);
        self.apply(false);
    }

    pub(super) fn reconcile_tokens(&mut self) {
        if let Some(records) = self.renew_records() {
            self.take_records(records);
        }
    }

    /// Returns `true` if these records are new.
    fn learn(&mut self, records: Records) -> bool {
        let records = records.following(self.known.records.as_ref(), &self.wanted.understood());
        if self.known.records.as_ref() == Some(&records) {
            return false;
        }
        self.known.records = Some(records);
        true
    }

    /// Reconciles the tokens, if this process manages them, and returns their records. A new token is accepted before a
    /// pointer config contains it; the modes stay the same until the end.
    fn renew_records(&mut self) -> Option<Records> {
        let Self { local, wanted, boot_rules, known, policy, rules, .. } = self;
        let accept = &mut |records: &Records| {
            let modes = policy.load().modes.clone();
            let signed = known.signed.clone();
            let machines = known.machines.clone();
            let known =
                SnapshotParts { records: Some(records.clone()), signed, machines, inputs: None };
            policy.store(Arc::new(known.policy(modes, boot_rules, rules)));
        };
        let (records, attention) = local.tokens.as_mut()?.reconcile(&wanted.understood(), accept);
        self.degrade(faults::TOKENS, &attention);
        let count = attention.len().try_into().unwrap_or(i64::MAX);
        self.publisher.reporting.metrics.tokens_attention.set(count);
        records
    }

    fn apply(&mut self, are_inputs_new: bool) {
        self.is_unfinished = true;
        let Some(snapshot) =
            Snapshot::new(&self.known, &self.wanted, &self.boot_rules, &self.rules)
        else {
            return;
        };
        let before = self.policy.load_full();
        self.report(&before.modes, &snapshot.policy.modes);
        self.policy.store(snapshot.tightened(&before.modes));
        let served = self.known.inputs.as_ref().map(|served| &served.enforced);
        let is_new = are_inputs_new || served != Some(&snapshot.inputs.enforced);
        if is_new {
            self.publisher.publish(&snapshot.inputs);
        }
        self.policy.store(snapshot.policy);
        self.known.inputs = Some(snapshot.inputs.clone());
    }

    /// Does what a change leaves for later: writes pointer configs, and tells subscribers.
    fn finish(&mut self) {
        self.is_unfinished = false;
        let pointer_configs = self.write_pointers();
        let (inputs, records) = (self.known.inputs.clone(), self.known.records.clone());
        let needs_tokens = self.wanted.need_tokens();
        let now =
            Published { inputs, pointer_configs, records, needs_tokens, ..Published::default() };
        self.publisher.notify(now);
    }

    /// Writes missing pointer configs of served pools, if this process does so.
    fn write_pointers(&mut self) -> Vec<(String, PathBuf)> {
        let Some(inputs) = &self.known.inputs else { return Vec::new() };
        let Some(pointers) = &mut self.local.pointers else { return Vec::new() };
        let written = pointers.write(inputs.pools.keys());
        let failed = pointers.faults();
        self.degrade(faults::POINTER_CONFIGS, &failed);
        written
    }

    /// Reads the modes that pools request. If they have changed, the tokens are reconciled.
    fn read_wanted(&mut self) {
        let Some(inputs) = &self.known.inputs else { return };
        let records = self.known.records.as_ref();
        let (wanted, faults) =
            WantedModes::read(&inputs.pools, self.rules.mode, &self.wanted, records);
        self.degrade(faults::MODES, &faults);
        let (boot_rules, faults) =
            BootRules::read(&inputs.pools, self.rules.min_ignition, &self.boot_rules);
        self.degrade(faults::BOOT_RULES, &faults);
        self.boot_rules = boot_rules;
        self.reconcile_approvals();
        if wanted != self.wanted {
            self.wanted = wanted;
            let records = self.renew_records().or_else(|| self.known.records.clone());
            records.map(|records| self.learn(records));
        }
    }

    fn report(&self, before: &Modes, now: &Modes) {
        let held: Vec<_> =
            now.held().map(|(pool, reason)| format!("pool {pool}: {reason}")).collect();
        self.degrade(faults::AUDITED, &held);
        let waiting = now.waiting().map(|(pool, why)| {
            format!(
                "pool {pool}: {why}; until then, only a known token opens it, other requests get 503"
            )
        });
        self.degrade(faults::UNKNOWN_ACCESS, &waiting.collect::<Vec<_>>());
        let label = |(pool, asked): (_, AccessMode)| (pool, asked.label(), now.of(pool).label());
        self.publisher.reporting.metrics.access_modes(self.wanted.restricted().map(label));
        let (before, now) = (before.enforced(), now.enforced());
        let at = OffsetDateTime::now_utc();
        for pool in now.difference(&before) {
            tracing::info!(pool, "access is enforced");
            self.publisher.history.note(format!("pool {pool}: access is enforced"), at);
        }
        for pool in before.difference(&now) {
            tracing::info!(pool, "access is no longer enforced");
            self.publisher.history.note(format!("pool {pool}: access is no longer enforced"), at);
        }
    }

    fn degrade(&self, fault: Fault<'_>, reasons: &[String]) {
        fault.report_all(&self.publisher.reporting.status, reasons);
    }
}

/// Waits until a reconciler that this process has must look again.
async fn due(schedule: Option<&Schedule>) -> Option<()> {
    OptionFuture::from(schedule.map(Schedule::due)).await
}

pub(crate) mod pointer_writer;
pub(crate) mod publish;
#[cfg(test)]
mod tests;
