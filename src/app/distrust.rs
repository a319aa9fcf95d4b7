//! `certs distrust`: CAs are taken out for ever, and who pays for it is told first.

use anyhow::bail;
use time::OffsetDateTime;

use super::certs::{Place, annotate, in_cluster, open, present_hosts, print_steps, refuse, see};
use super::print_line;
use crate::controllers::NAMESPACE;
use crate::controllers::certificates::{AUTHORITY, DISTRUST};
use crate::pki::{self, Asked, Certificate, CertificateState, Policy, told_lockouts};

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
    let seen = see(place)?;
    let known = pki::trusted_by_somebody(&seen.observed, now);
    let cas = find(named, &known, &seen.place)?;
    let asked =
        Asked { distrust: cas.iter().map(Certificate::fingerprint).collect(), ..Asked::default() };
    let state = CertificateState { asked: asked.clone(), ..seen.observed.clone() };
    let (foreseen, attention) =
        pki::foresee(&state, policy, now, &mut |_| policy.algorithm.generate())?;
    for ca in &cas {
        print_line(&format!("{} ({})", ca.common_name, ca.fingerprint()));
    }
    let before = told_lockouts(&seen.observed, now);
    for lockout in pki::lockouts_of(&foreseen, &seen.observed, now) {
        if !before.iter().any(|known| known.holder == lockout.holder) {
            print_line(&lockout.to_string());
        }
    }
    if !yes {
        bail!("nothing was changed: say --yes to distrust what is named above for ever");
    }
    match place {
        Place::Folder(folder) => {
            let (state, hosts) = (open(folder)?, present_hosts(&open(folder)?)?);
            let generate = &mut |_| policy.algorithm.generate();
            let done = state.reconcile(&hosts, asked, policy, now, generate)?;
            print_steps(&state, &done);
            refuse(&state, done.attention)
        }
        Place::Cluster { kubeconfig, .. } => in_cluster(kubeconfig.as_deref(), async |client| {
            let mut listed = seen.distrusted;
            listed.extend(asked.distrust);
            annotate(&client, AUTHORITY, DISTRUST, listed.join(",")).await?;
            print_line(&format!("asked to distrust them by Secret {NAMESPACE}/{AUTHORITY}"));
            let left = pki::trusted_by_somebody(&foreseen, now);
            if let Some(reason) = attention
                .iter()
                .find(|it| !it.is_warning())
                .filter(|_| left.iter().any(|ca| cas.contains(ca)))
            {
                bail!("the controller cannot do it yet: {reason}");
            }
            Ok(())
        }),
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
