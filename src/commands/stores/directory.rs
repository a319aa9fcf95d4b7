//! A state directory as a store for commands, which carry out their requests themselves, as a server does.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use model::access::Records;
use model::access::machine::{ClockReading, Window};
use model::pointer_config::{LeftAlone, PointerConfig};
use pki::{DROPPED_REASON, Host, Lockout, LockoutReason, Policy, RotationRequest, Step, Warning};
use time::OffsetDateTime;

use super::certificate_texts::{located, warn_locked_out};
use super::distrust::DistrustPreview;
use super::exposure::{self, ConfigFindings};
use super::state_store::{ChangeTokens, ObservedState, StateStore};
use crate::commands::rendering::read_manifests;
use crate::commands::{print_line, print_stderr};
use crate::source::Butane;
use crate::store::state_directory::{Reconciled, StateDirectory};

/// Opens an existing state directory.
pub(in crate::commands) fn open_state(path: &Path) -> Result<StateDirectory> {
    ensure!(path.is_dir(), "--state-dir {}: directory not found", path.display());
    let report_wait = |path: &Path| {
        print_stderr(&format!("waiting for another process that changes {}", path.display()));
    };
    Ok(StateDirectory::open(path, report_wait)?)
}

pub(in crate::commands) struct DirectoryStore(pub(crate) StateDirectory);

impl DirectoryStore {
    /// Names of the present serving certificate, for its replacement.
    fn present_hosts(&self) -> Result<Vec<Host>> {
        let leaf = self.0.observe(&[])?.served();
        let Some(leaf) = leaf else { return Ok(Vec::new()) };
        let mut hosts: Vec<Host> = leaf.hosts.into_iter().collect();
        // The main one is the common name.
        hosts.sort_by_key(|host| host.to_string() != leaf.common_name);
        Ok(hosts)
    }

    fn print_steps(&self, done: &Reconciled) {
        for what in &done.dropped {
            print_line(&format!("warning: {DROPPED_REASON}: {what}"));
        }
        for step in &done.steps {
            print_line(&match step {
                Step::Ca(reason) => format!("made a signing CA: {reason}"),
                Step::Store(reason) => {
                    format!("rewrote the CA store: {reason}")
                }
                Step::Bundle(_) => format!("wrote {}", self.0.bundle_path().display()),
                Step::Pointers => "wrote the pointer configs".to_owned(),
                Step::Serving(reason, _) => format!("issued a serving certificate: {reason}"),
            });
        }
    }

    /// Fails if a request was refused, or a pointer config of this directory does not boot with the present
    /// certificates, unless the caller `accepts_lockouts`. Other lockouts are warnings: pointer configs that boot with
    /// no certificate or trust unknown CAs, and machines elsewhere.
    fn refuse(&self, attention: Vec<Warning>, accepts_lockouts: bool) -> Result<()> {
        for warning in attention.iter().filter(|attention| attention.is_warning()) {
            print_line(&format!("warning: {warning}"));
        }
        let seen = self.observe(None)?;
        let is_ours = |text: &[u8]| {
            seen.foreign_reason(&PointerConfig::read(text)) != Some(LeftAlone::Foreign)
        };
        let is_kept =
            |holder: &str| seen.pointers.iter().any(|(name, text)| name == holder && is_ours(text));
        let is_met = |it: &Warning| match it {
            Warning::LockedOut(Lockout { reason: LockoutReason::Pointer(_), .. }) => true,
            Warning::LockedOut(Lockout { holder, .. }) => accepts_lockouts || !is_kept(holder),
            it => it.is_warning(),
        };
        let (met, unmet): (Vec<_>, Vec<_>) = attention.into_iter().partition(is_met);
        let mut unmet = unmet.into_iter();
        let first = unmet.next();
        warn_locked_out(met.into_iter().chain(unmet));
        match first {
            Some(attention) => bail!("{}", located(&attention, &seen.files)),
            None => Ok(()),
        }
    }
}

/// Files with secrets that too many users can read, one line each.
fn open_files(state: &StateDirectory) -> Vec<String> {
    let keys = state
        .open_keys()
        .into_iter()
        .map(|path| format!("{}: users other than its owner can read the key", path.display()));
    let tokens = state.open_tokens().into_iter();
    let tokens = tokens.map(|path| format!("{}: all users can read its tokens", path.display()));
    keys.chain(tokens).collect()
}

impl StateStore for DirectoryStore {
    fn observe(&self, manifests: Option<&Path>) -> Result<ObservedState> {
        let inputs = manifests
            .map(|root| read_manifests(root.to_owned(), Butane::default(), false))
            .transpose()?;
        let pools = inputs.map(|inputs| Arc::new(inputs.pools.keys().cloned().collect()));
        let state = self.0.clone().with_pools(pools);
        let pointers = state.pointers()?;
        let of_machines = pointers.iter().filter(|file| state.is_of_machine(&file.path));
        let of_machines = of_machines.map(|file| file.path.display().to_string()).collect();
        let pointers = pointers.into_iter();
        let unreadable = state.unreadable().into_iter().map(|it| it.to_string());
        let requests = state.rotation_requests().unreadable.into_iter().map(|it| it.to_string());
        let unreadable = unreadable.chain(requests);
        // A list that cannot be read is never written: machines get no new tokens.
        let lists = [state.issued().err(), state.records().err(), state.machine_tokens().err()];
        let unreadable = unreadable.chain(lists.into_iter().flatten().map(|it| it.to_string()));
        Ok(ObservedState {
            pools: state.pools()?,
            place: state.path().display().to_string(),
            observed: state.observe(&self.present_hosts()?)?,
            open_files: open_files(&state),
            unreadable: unreadable.collect(),
            files: state.key_files(),
            pointers: pointers.map(|file| (file.path.display().to_string(), file.text)).collect(),
            unused: BTreeSet::new(),
            of_machines,
        })
    }

    fn has_separate_rights(&self) -> bool {
        false
    }

    fn config_findings(&self, manifests: Option<&Path>) -> Result<ConfigFindings> {
        let Some(manifests) = manifests else { return Ok(ConfigFindings::default()) };
        exposure::of_manifests(manifests, &self.records()?.enforced)
    }

    fn records(&self) -> Result<Records> {
        let mut records = self.0.records()?;
        let now = OffsetDateTime::now_utc();
        // The commands are no server: an answer that has begun may have been delivered in full.
        let now = ClockReading { wall: now, up: std::time::Duration::ZERO };
        let machines = self.0.machine_tokens()?.tokens.into_iter();
        records.tokens.extend(
            machines.map(|(name, token)| token.found().record(&name, Window::default(), now)),
        );
        Ok(records)
    }

    fn change_tokens(&self, change: &ChangeTokens<'_>) -> Result<()> {
        self.0.change_tokens(change)
    }

    fn rotate(&self, ca: bool, force: bool, policy: &Policy, now: OffsetDateTime) -> Result<()> {
        let hosts = self.present_hosts()?;
        if hosts.is_empty() && !force {
            // An unusable pair is a better explanation than a missing one.
            let observed = self.0.observe(&hosts)?;
            let generate = &mut |_| policy.algorithm.generate();
            self.refuse(pki::dry_run(&observed, policy, now, generate)?.1, force)?;
            let path = self.0.path().display();
            bail!("{path}: no serving certificate yet: run `serve` first");
        }
        let requested = RotationRequest { ca, serving: true, force, distrust: Vec::new() };
        let done = self.0.rotate(&requested, &hosts, policy, now)?;
        self.print_steps(&done);
        if let Some(error) = done.stuck {
            bail!(error);
        }
        self.refuse(done.attention, force)
    }

    fn distrust(
        &self,
        named: &[String],
        yes: bool,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<()> {
        let mut reported = BTreeSet::new();
        // Held from the look on, so that no other process distrusts the remaining CAs meanwhile.
        let wanted = || {
            let preview = DistrustPreview::of(self.observe(None)?, named, policy, now)?;
            preview.report(yes, now, &mut reported)?;
            anyhow::Ok((self.present_hosts()?, preview.requested.distrust))
        };
        let mut done = self.0.reconcile(wanted, policy, now)?;
        self.print_steps(&done);
        done.attention.retain(|it| !reported.contains(&it.to_string()));
        self.refuse(done.attention, yes)
    }
}
