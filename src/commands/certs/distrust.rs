//! `certs distrust`: CAs are taken out for ever, and who pays for it is told first.

use std::collections::BTreeSet;

use anyhow::bail;
use pki::{self, Asked, Certificate, CertificateState, Lockout, Policy, Warning, told_lockouts};
use time::OffsetDateTime;

use super::{ask_again, print_steps, refuse};
use crate::commands::kept::{
    Place, Seen, in_cluster, open, present_hosts, see_cluster, see_directory,
};
use crate::commands::print_line;
use crate::controllers::NAMESPACE;
use crate::controllers::certificates::{AUTHORITY, Ask, ask};
use crate::kubernetes::Applied;

/// Takes CAs out: of the bundle, pointer configs, the chain and the stored keys, for ever. Each is
/// named by a file with its certificate, its SHA-256 fingerprint or its common name. Without `yes`
/// it only says who could not boot any more.
///
/// # Errors
/// A name that is nobody's, or why it cannot be done.
pub fn distrust(
    place: &Place,
    named: &[String],
    yes: bool,
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    match place {
        Place::Directory(directory) => {
            let state = open(directory)?;
            // Held from the look on: nobody else distrusts the CAs that are left meanwhile.
            let lock = state.lock()?;
            let foreseen = Foreseen::of(see_directory(directory, None)?, named, policy, now)?;
            let mut told = BTreeSet::new();
            foreseen.tell(yes, now, &mut told)?;
            let hosts = present_hosts(&state)?;
            let generate = &mut |_| policy.algorithm.generate();
            let asked = foreseen.asked;
            let mut done = state.reconcile_under(&lock, &hosts, asked, policy, now, generate)?;
            print_steps(&state, &done);
            done.attention.retain(|it| !told.contains(&it.to_string()));
            refuse(&state, done.attention, yes)
        }
        Place::Cluster { kubeconfig, user_data_namespace } => {
            in_cluster(kubeconfig.as_deref(), async |client| {
                let mut told = BTreeSet::new();
                let mut last = None;
                ask_again(AUTHORITY, async || {
                    let (seen, cluster) = see_cluster(&client, user_data_namespace).await?;
                    let listed = &seen.observed.asked.distrust;
                    if last.as_ref().is_some_and(|it: &Foreseen| it.is_listed(listed)) {
                        return Ok(Applied::Done);
                    }
                    let foreseen = Foreseen::of(seen, named, policy, now)?;
                    foreseen.tell(yes, now, &mut told)?;
                    let request = Ask::Distrust(foreseen.asked.distrust.clone());
                    last = Some(foreseen);
                    Ok(ask(&client, &cluster, &request).await?)
                })
                .await?;
                print_line(&format!("asked to distrust them by Secret {NAMESPACE}/{AUTHORITY}"));
                match last.as_ref().and_then(|foreseen| foreseen.obstacle(now)) {
                    Some(reason) => bail!("the controller cannot do it yet: {reason}"),
                    None => Ok(()),
                }
            })
        }
    }
}

/// What comes of it.
struct Foreseen {
    seen: CertificateState,
    cas: Vec<Certificate>,
    asked: Asked,
    state: CertificateState,
    attention: Vec<Warning>,
}

impl Foreseen {
    fn of(
        seen: Seen,
        named: &[String],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> anyhow::Result<Self> {
        let known = pki::trusted_by_somebody(&seen.observed, now);
        let cas = find(named, &known, &seen.place)?;
        // What others have asked for, and is not done yet, is done with it.
        let mut distrust = seen.observed.asked.distrust.clone();
        distrust.extend(cas.iter().map(Certificate::fingerprint));
        let asked = Asked { distrust, ..Asked::default() };
        let state = CertificateState { asked: asked.clone(), ..seen.observed.clone() };
        let generate = &mut |_| policy.algorithm.generate();
        let (state, attention) = pki::dry_run(&state, policy, now, generate)?;
        Ok(Self { seen: seen.observed, cas, asked, state, attention })
    }

    /// Prints what is distrusted and who could not boot any more, but for what was `told` before.
    ///
    /// # Errors
    /// Without `yes`: nothing is to be done.
    fn tell(
        &self,
        yes: bool,
        now: OffsetDateTime,
        told: &mut BTreeSet<String>,
    ) -> anyhow::Result<()> {
        let cas = self.cas.iter().map(|ca| format!("{} ({})", ca.common_name, ca.fingerprint()));
        let before = told_lockouts(&self.seen, now);
        let is_new = |it: &Lockout| !before.iter().any(|known| known.holder == it.holder);
        let lockouts = pki::lockouts_of(&self.state, &self.seen, now);
        let lockouts = lockouts.iter().filter(|it| is_new(it)).map(Lockout::to_string);
        for line in cas.chain(lockouts) {
            if !told.contains(&line) {
                print_line(&line);
                told.insert(line);
            }
        }
        if !yes {
            bail!("nothing was changed: say --yes to distrust what is named above for ever");
        }
        Ok(())
    }

    /// Whether somebody else has asked for it meanwhile.
    fn is_listed(&self, listed: &[String]) -> bool {
        self.cas.iter().all(|ca| listed.contains(&ca.fingerprint()))
    }

    /// Why the controller does not do it yet, if it does not.
    fn obstacle(&self, now: OffsetDateTime) -> Option<&Warning> {
        let left = pki::trusted_by_somebody(&self.state, now);
        let obstacle = self.attention.iter().find(|it| !it.is_warning());
        obstacle.filter(|_| left.iter().any(|ca| self.cas.contains(ca)))
    }
}

/// The CAs that are named by files, fingerprints or common names.
fn find(named: &[String], known: &[Certificate], place: &str) -> anyhow::Result<Vec<Certificate>> {
    let mut cas: Vec<Certificate> = Vec::new();
    for name in named {
        let found: Vec<_> = match std::fs::read(name) {
            Ok(text) => {
                let read = Certificate::read_all(&text);
                if read.is_empty() {
                    bail!("{name}: there is no certificate in it");
                }
                // A cross-certificate, or one that was renewed, is its CA's too.
                let is_read = |ca: &&Certificate| read.iter().any(|it| it.has_key_of(ca));
                known.iter().filter(is_read).cloned().collect()
            }
            Err(_) => known.iter().filter(|ca| ca.is_called(name)).cloned().collect(),
        };
        if found.is_empty() {
            bail!("{name}: no CA that is known in {place} is called so, and no file has one");
        }
        cas.extend(found);
    }
    Ok(cas)
}
