//! Judges and replaces the CAs in existing pointer configs.
//!
//! Only configs that are understood are edited, and in them only the entry with the machine config server's CAs: every
//! other byte stays the same.
//!
//! A CA is the machine config server's if its certificate or its key is. A name proves nothing: an administrator's CA
//! can be named `root-ca` too.

use ignition::{ca_source, names_field};
use pki::certificate::certificate_pem;
use pki::{Certificate, PointerState, PointerTrust, RepairedPointer};
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use super::config::PointerConfig;
use super::json_text::{members, place, spliced};
use super::written::{MAX_BYTES, WrittenConfig, certificates};

/// Assessment of user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    /// Not edited, for this reason.
    LeftAlone(LeftAlone),
    /// Trust is up to date.
    Current,
    /// Trust is outdated, or the config is missing; the text that trusts the CAs of the bundle.
    Stale(Vec<u8>),
}

impl Assessment {
    /// Reason why it is not edited.
    pub fn left_alone(&self) -> Option<LeftAlone> {
        match self {
            Self::LeftAlone(reason) => Some(*reason),
            Self::Current | Self::Stale(_) => None,
        }
    }
}

/// Reasons why user data is not edited.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum LeftAlone {
    /// The text is a script, another tool's data or broken JSON.
    #[error("not an Ignition config")]
    NoIgnition,
    /// The Ignition config has no CAs.
    #[error("trusts no CAs")]
    #[strum(serialize = "no-authorities")]
    NoCas,
    /// None of its CAs is the machine config server's.
    #[error("trusts only other CAs than those of this server")]
    Foreign,
    /// A CA has a name of the machine config server's, which proves nothing.
    #[error("trusts a CA with the name of this server's, but with an unknown certificate and key")]
    NameOnly,
    /// The machine config server's CAs are in a place that is not edited.
    #[error(
        "trusts this server's CAs in a place where they cannot be replaced: in a nested config, or \
            in a text that is not edited"
    )]
    OutOfReach,
    /// The text is larger than [`MAX_BYTES`].
    #[error("has more than {MAX_BYTES} bytes, which no platform accepts as user data")]
    TooLarge,
}

impl LeftAlone {
    /// All reasons.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Value of the label in metrics and events: the name of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl PointerConfig<'_> {
    /// Assesses its trust against the bundle. `known` are other CAs that were the machine config server's before.
    pub fn assess(&self, bundle: &[Certificate], known: &[Certificate]) -> Assessment {
        if self.is_too_large() {
            return Assessment::LeftAlone(LeftAlone::TooLarge);
        }
        // Renewed certificates and cross-certificates have the key of the known one.
        let is_ours = |certificate: &Certificate| {
            bundle.iter().chain(known).any(|own| certificate.has_key_of(own))
        };
        let assessed = self.written.map_or(Assessment::LeftAlone(LeftAlone::NoIgnition), |it| {
            assess_written(&it, bundle, is_ours)
        });
        let is_out_of_reach = match &assessed {
            Assessment::LeftAlone(_) => self.trusted().iter().any(is_ours),
            Assessment::Current => self.is_replaced_within(bundle, is_ours),
            Assessment::Stale(text) => {
                PointerConfig::read(text).is_replaced_within(bundle, is_ours)
            }
        };
        if is_out_of_reach { Assessment::LeftAlone(LeftAlone::OutOfReach) } else { assessed }
    }

    /// Returns `true` if a nested config replaces the CAs in this one, and a machine fetches by other CAs of this
    /// server than those of the bundle.
    fn is_replaced_within(
        &self,
        bundle: &[Certificate],
        is_ours: impl Fn(&Certificate) -> bool,
    ) -> bool {
        self.found().iter().any(|fetch| {
            fetch.trusted.iter().any(&is_ours)
                && !fetch.trusted.iter().any(|ca| bundle.contains(ca))
        })
    }

    /// The observation of an assessed config for a rotation of certificates; messages call it `title`. Faults are not
    /// checked.
    pub fn trust(&self, name: &str, title: &str, assessed: Assessment) -> PointerTrust {
        let state = match assessed {
            Assessment::Stale(text) => {
                let holders = PointerConfig::read(&text).holders(title);
                PointerState::Stale(RepairedPointer { holders, text })
            }
            Assessment::LeftAlone(LeftAlone::OutOfReach) => PointerState::OutOfReach,
            Assessment::Current | Assessment::LeftAlone(_) => PointerState::Kept,
        };
        let (hosts, holders) = (self.hosts(), self.holders(title));
        let (name, bytes) = (name.to_owned(), self.size());
        PointerTrust { name, state, bytes, hosts, holders, faults: Vec::new() }
    }
}

fn assess_written(
    written: &WrittenConfig<'_>,
    bundle: &[Certificate],
    is_ours: impl Fn(&Certificate) -> bool,
) -> Assessment {
    let texts = written.entries();
    if texts.is_empty() {
        return Assessment::LeftAlone(LeftAlone::NoCas);
    }
    let entries: Vec<_> = texts.iter().map(|text| Entry::read(text, &is_ours)).collect();
    let own: Vec<_> = (0..entries.len()).filter(|&index| !entries[index].ours.is_empty()).collect();
    let Some((&first, rest)) = own.split_first() else {
        let is_named = entries.iter().any(|entry| entry.others.iter().any(is_named_like_ours));
        let reason = if is_named { LeftAlone::NameOnly } else { LeftAlone::Foreign };
        return Assessment::LeftAlone(reason);
    };
    let trusted = || own.iter().flat_map(|&index| &entries[index].ours);
    let is_current = bundle.iter().all(|wanted| trusted().any(|present| present == wanted))
        && trusted().all(|present| bundle.contains(present));
    if is_current {
        return Assessment::Current;
    }
    let others = own.iter().flat_map(|&index| &entries[index].others);
    let pem: String = bundle
        .iter()
        .map(Certificate::to_pem)
        .chain(others.map(|other| certificate_pem(other)))
        .collect();
    let place = |index: usize| place(written.text, texts[index]);
    let mut changes = vec![(place(first), with_source(texts[first], &ca_source(pem.as_bytes())))];
    // The comma before each removed entry goes too; the first entry stays.
    changes
        .extend(rest.iter().map(|&index| (place(index - 1).end..place(index).end, String::new())));
    Assessment::Stale(spliced(written.text, &changes).into_bytes())
}

struct Entry {
    /// Certificates of the machine config server.
    ours: Vec<Certificate>,
    /// Other certificates in DER.
    others: Vec<CertificateDer<'static>>,
}

impl Entry {
    fn read(text: &str, is_ours: impl Fn(&Certificate) -> bool) -> Self {
        let mut entry = Self { ours: Vec::new(), others: Vec::new() };
        for der in certificates(text) {
            match Certificate::from_der(&der).filter(&is_ours) {
                Some(own) => entry.ours.push(own),
                None => entry.others.push(der),
            }
        }
        entry
    }
}

/// An entry with another source. Properties of the old contents are removed.
fn with_source(entry: &str, source: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut fields = vec![format!("\"source\":{}", quoted(source))];
    for (name, value) in members(entry).unwrap_or_default() {
        let is_own = |own: &str| names_field(&name, own);
        if !["source", "verification", "compression"].into_iter().any(is_own) {
            fields.push(format!("{}:{value}", quoted(&name)));
        }
    }
    format!("{{{}}}", fields.join(","))
}

/// Returns `true` if a certificate has a name of a machine config server's CA: this server's, that of OpenShift's
/// controller, or of its installer.
fn is_named_like_ours(der: &CertificateDer<'_>) -> bool {
    Certificate::from_der(der).is_some_and(|certificate| {
        certificate.common_name == "root-ca"
            || certificate.common_name.contains("machine-config-server-ca@")
    })
}

#[cfg(test)]
mod tests;
