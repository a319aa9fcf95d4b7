//! The report before CAs are distrusted for good: the machines that it locks out.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::bail;
use files::bounded;
use pki::{
    self, Certificate, CertificateState, Lockout, Policy, RotationRequest, Warning,
    reported_lockouts,
};
use time::OffsetDateTime;

use super::state_store::ObservedState;
use crate::commands::print_line;

/// Result of a dry run.
pub(in crate::commands) struct DistrustPreview {
    seen: CertificateState,
    cas: Vec<Certificate>,
    pub(in crate::commands) requested: RotationRequest,
    state: CertificateState,
    attention: Vec<Warning>,
}

impl DistrustPreview {
    pub(in crate::commands) fn of(
        seen: ObservedState,
        named: &[String],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> anyhow::Result<Self> {
        let known = pki::trusted_cas(&seen.observed, now);
        let cas = find(named, &known, &seen.place)?;
        // Open requests of other administrators are handled with it.
        let mut distrust = seen.observed.requested.distrust.clone();
        distrust.extend(cas.iter().map(Certificate::fingerprint));
        let requested = RotationRequest { distrust, ..RotationRequest::default() };
        let state = CertificateState { requested: requested.clone(), ..seen.observed.clone() };
        let generate = &mut |_| policy.algorithm.generate();
        let (state, attention) = pki::dry_run(&state, policy, now, generate)?;
        Ok(Self { seen: seen.observed, cas, requested, state, attention })
    }

    /// Prints the distrusted CAs, and the machines that could not boot any longer, except those in `reported`.
    pub(in crate::commands) fn report(
        &self,
        yes: bool,
        now: OffsetDateTime,
        reported: &mut BTreeSet<String>,
    ) -> anyhow::Result<()> {
        let cas = self.cas.iter().map(|ca| format!("{} ({})", ca.common_name, ca.fingerprint()));
        let before = reported_lockouts(&self.seen, now);
        let is_new = |it: &Lockout| !before.iter().any(|known| known.holder == it.holder);
        let lockouts = pki::lockouts_of(&self.state, &self.seen, now);
        let lockouts = lockouts.iter().filter(|it| is_new(it)).map(Lockout::to_string);
        for line in cas.chain(lockouts) {
            if !reported.contains(&line) {
                print_line(&line);
                reported.insert(line);
            }
        }
        if !yes {
            bail!(
                "nothing was changed: repeat the command with --yes to distrust the CAs above permanently"
            );
        }
        Ok(())
    }

    /// Returns `true` if another administrator has requested the same meanwhile.
    pub(in crate::commands) fn is_listed(&self, listed: &[String]) -> bool {
        self.cas.iter().all(|ca| listed.contains(&ca.fingerprint()))
    }

    /// Reason why the controller does not do it yet, if any.
    pub(in crate::commands) fn obstacle(&self, now: OffsetDateTime) -> Option<&Warning> {
        let left = pki::trusted_cas(&self.state, now);
        let obstacle = self.attention.iter().find(|it| !it.is_warning());
        obstacle.filter(|_| left.iter().any(|ca| self.cas.contains(ca)))
    }
}

/// The CAs named by files, fingerprints or common names.
fn find(named: &[String], known: &[Certificate], place: &str) -> anyhow::Result<Vec<Certificate>> {
    let mut cas: Vec<Certificate> = Vec::new();
    for name in named {
        let found: Vec<_> = match bounded::read(Path::new(name)) {
            Ok(text) => {
                let read = Certificate::read_all(&text);
                if read.is_empty() {
                    bail!("{name}: has no certificate");
                }
                // A cross-certificate or a renewed one names its CA too.
                let is_read = |ca: &&Certificate| read.iter().any(|it| it.has_key_of(ca));
                known.iter().filter(is_read).cloned().collect()
            }
            Err(_) => known.iter().filter(|ca| ca.is_called(name)).cloned().collect(),
        };
        if found.is_empty() {
            bail!("{name}: not the name of a CA in {place}, and not a file with a certificate");
        }
        cas.extend(found);
    }
    Ok(cas)
}
