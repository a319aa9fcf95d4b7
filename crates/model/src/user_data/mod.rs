//! Pointer configs that are there already: which authorities they trust, and how they come to
//! trust others with everything else left as it is.
//!
//! A machine's user data may be anything: another tool's, a script, an Ignition config of any spec
//! with more in it than a pointer. Only what is understood is touched, and in it only the entry of
//! the machine config server's authorities: every byte around it stays.
//!
//! An authority is the machine config server's if its certificate or its key is. A name proves
//! nothing: an administrator's CA may be called `root-ca` too.

mod bearer;
mod carrier;
mod config;
mod json_text;
mod plain;

use std::io::Read as _;

use ignition::{authority_source, data_url, names_field};
use pki::certificate::certificate_pem;
use pki::{Certificate, Holder, Host, MendedPointer, PointerState, PointerTrust};
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use self::config::Config;
use self::json_text::{find, members, place, spliced, string};
use crate::pointer_check::{self, Block, Reading, block};

pub use self::bearer::{Brings, Fetch, NoHeader, fetches_of_pools, no_header, with_bearer};
pub use self::carrier::{carried, carriers, carrying};
pub use self::config::MAX_BYTES;
pub use self::plain::{is_plain_pointer, lifted};

/// More than any bundle has, so that a small gzip text cannot fill the memory.
const MAX_PEM: u64 = 1 << 20;

/// What a text of user data is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assessment {
    /// It is left alone, for this reason.
    LeftAlone(LeftAlone),
    /// It trusts what it should.
    Current,
    /// It trusts other authorities, or is not there. This is the text that trusts those of the bundle.
    Stale(Vec<u8>),
}

impl Assessment {
    /// Why it is left alone, if it is.
    #[must_use]
    pub fn left_alone(&self) -> Option<LeftAlone> {
        match self {
            Self::LeftAlone(reason) => Some(*reason),
            Self::Current | Self::Stale(_) => None,
        }
    }
}

/// Why user data is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// A script, another tool's data, broken JSON.
    #[error("it is no Ignition config")]
    NoIgnition,
    /// An Ignition config that names no authorities.
    #[error("it names no certificate authorities")]
    NoAuthorities,
    /// None of the authorities that it names has to do with the machine config server.
    #[error("it trusts only other authorities than the machine config server's")]
    Foreign,
    /// One of them is called like the machine config server's, which is no proof.
    #[error(
        "it trusts a CA that is named like the machine config server's, but neither its \
         certificate nor its key is known here"
    )]
    NameOnly,
    /// It trusts the machine config server's where they are not replaced.
    #[error(
        "it trusts the machine config server's CAs where they cannot be replaced: in a config within \
         it, or in a text that is not edited"
    )]
    OutOfReach,
    /// It has more than [`MAX_BYTES`].
    #[error("it has more than {MAX_BYTES} bytes, which no platform takes as user data")]
    TooLarge,
}

impl LeftAlone {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NoIgnition,
        Self::NoAuthorities,
        Self::Foreign,
        Self::NameOnly,
        Self::OutOfReach,
        Self::TooLarge,
    ];

    /// How metrics and events name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoIgnition => "no-ignition",
            Self::NoAuthorities => "no-authorities",
            Self::Foreign => "foreign",
            Self::NameOnly => "name-only",
            Self::OutOfReach => "out-of-reach",
            Self::TooLarge => "too-large",
        }
    }
}

/// Judges `user_data` by the bundle that it should trust. `known` are further authorities that were
/// the machine config server's once.
#[must_use]
pub fn assess(user_data: &[u8], bundle: &[Certificate], known: &[Certificate]) -> Assessment {
    if user_data.len() > MAX_BYTES {
        return Assessment::LeftAlone(LeftAlone::TooLarge);
    }
    // A renewed certificate and a cross-certificate have the key of the one that is known.
    let is_ours = |certificate: &Certificate| {
        bundle.iter().chain(known).any(|own| certificate.has_key_of(own))
    };
    let assessed = assess_written(user_data, bundle, is_ours);
    let is_out_of_reach = match &assessed {
        Assessment::LeftAlone(_) => trusted(user_data).iter().any(is_ours),
        Assessment::Current => is_replaced_within(user_data, bundle, is_ours),
        Assessment::Stale(text) => is_replaced_within(text, bundle, is_ours),
    };
    if is_out_of_reach { Assessment::LeftAlone(LeftAlone::OutOfReach) } else { assessed }
}

/// Whether a machine fetches by other authorities of ours than those of the bundle, which are written in the config
/// itself: those of a config within it take their place.
fn is_replaced_within(
    user_data: &[u8],
    bundle: &[Certificate],
    is_ours: impl Fn(&Certificate) -> bool,
) -> bool {
    reading(user_data).found.iter().any(|fetch| {
        fetch.trusted.iter().any(&is_ours) && !fetch.trusted.iter().any(|ca| bundle.contains(ca))
    })
}

/// The same, by what is written in the config itself.
fn assess_written(
    user_data: &[u8],
    bundle: &[Certificate],
    is_ours: impl Fn(&Certificate) -> bool,
) -> Assessment {
    let Some(config) = Config::read(user_data) else {
        return Assessment::LeftAlone(LeftAlone::NoIgnition);
    };
    let texts = config.authorities();
    if texts.is_empty() {
        return Assessment::LeftAlone(LeftAlone::NoAuthorities);
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
    let place = |index: usize| place(config.text, texts[index]);
    let mut changes =
        vec![(place(first), with_source(texts[first], &authority_source(pem.as_bytes())))];
    // With the comma before each, which the first one that stays makes sure of.
    changes
        .extend(rest.iter().map(|&index| (place(index - 1).end..place(index).end, String::new())));
    Assessment::Stale(spliced(config.text, &changes).into_bytes())
}

/// A text of user data as a rotation sees it: the pointer config `name`, judged as [`assess`] does.
#[must_use]
pub fn observe(
    name: &str,
    user_data: &[u8],
    bundle: &[Certificate],
    known: &[Certificate],
) -> PointerTrust {
    pointer(name, name, user_data, assess(user_data, bundle, known))
}

/// The pointer config `name`, called by `title` where it is told of, as a rotation sees it. No faults are looked for.
#[must_use]
pub fn pointer(name: &str, title: &str, user_data: &[u8], assessed: Assessment) -> PointerTrust {
    let state = match assessed {
        Assessment::Stale(text) => {
            PointerState::Stale(MendedPointer { holders: holders(title, &text), text })
        }
        Assessment::LeftAlone(LeftAlone::OutOfReach) => PointerState::OutOfReach,
        Assessment::Current | Assessment::LeftAlone(_) => PointerState::Kept,
    };
    PointerTrust {
        name: name.to_owned(),
        state,
        bytes: user_data.len(),
        hosts: hosts(user_data),
        holders: holders(title, user_data),
        faults: Vec::new(),
    }
}

/// What Ignition makes of a text, nothing of what is too large to be user data.
fn reading(user_data: &[u8]) -> Reading {
    if user_data.len() > MAX_BYTES { Reading::default() } else { pointer_check::read(user_data) }
}

/// The authorities that a machine trusts when it fetches by a pointer config, ours or not, each once; all that are
/// written there where it fetches nothing that is understood.
#[must_use]
pub fn trusted(user_data: &[u8]) -> Vec<Certificate> {
    let found = reading(user_data).found;
    if found.is_empty() {
        return authorities(user_data);
    }
    let mut trusted = Vec::new();
    for ca in found.into_iter().flat_map(|fetch| fetch.trusted) {
        if !trusted.contains(&ca) {
            trusted.push(ca);
        }
    }
    trusted
}

/// All authorities that are written in a pointer config itself, ours or not.
#[must_use]
pub fn authorities(user_data: &[u8]) -> Vec<Certificate> {
    let Some(config) = Config::read(user_data) else { return Vec::new() };
    let ders = config.authorities().into_iter().flat_map(certificates);
    ders.filter_map(|der| Certificate::from_der(&der)).collect()
}

/// Whether a pointer config fetches from `url`.
#[must_use]
pub fn fetches(user_data: &[u8], url: &str) -> bool {
    let found = reading(user_data).found;
    if !found.is_empty() {
        return found.iter().any(|fetch| fetch.url == url);
    }
    Config::read(user_data).is_some_and(|config| config.sources().any(|source| source == url))
}

/// Where a pointer config would fetch the config of `pool`: by the server that it fetches from.
#[must_use]
pub fn url_for(user_data: &[u8], pool: &str) -> Option<String> {
    let config = Config::read(user_data)?;
    let mut urls = config.urls().filter(|url| url.scheme() == Some(&http::uri::Scheme::HTTPS));
    let server = urls.next()?.authority()?.clone();
    Some(format!("https://{server}/config/{pool}"))
}

/// The hosts that a pointer config fetches from, in their order. Of a config that no Ignition which is known here
/// fetches anything by, those that are written in it.
#[must_use]
pub fn hosts(user_data: &[u8]) -> Vec<Host> {
    let found = reading(user_data).found;
    if !found.is_empty() {
        return found.into_iter().map(|fetch| fetch.host).collect();
    }
    let Some(config) = Config::read(user_data) else { return Vec::new() };
    config.urls().filter_map(|url| url.host()?.parse().ok()).collect()
}

/// The pointer config `name` as those who may be locked out. None if no certificate matters to it: it fetches nothing
/// over TLS, or names no authorities that are understood.
#[must_use]
pub fn holders(name: &str, user_data: &[u8]) -> Vec<Holder> {
    let Reading { found, faults, .. } = reading(user_data);
    if found.is_empty() {
        return written_holder(name, user_data).into_iter().collect();
    }
    let mut holders = pointer_check::holders(name, &found);
    // Whom a machine trusts by authorities that it fetches is not known; that it needs some is.
    holders.retain(|holder| !holder.trusted.is_empty() || faults.is_empty());
    holders
}

/// The same of a config that no Ignition which is known here fetches anything by: a newer one may.
fn written_holder(name: &str, user_data: &[u8]) -> Option<Holder> {
    let config = Config::read(user_data)?;
    let urls = config.urls().filter(|url| url.scheme() == Some(&http::uri::Scheme::HTTPS));
    let hosts: Vec<Host> = urls.filter_map(|url| url.host()?.parse().ok()).collect();
    let trusted = authorities(user_data);
    let matters = !hosts.is_empty() && !trusted.is_empty();
    matters.then(|| Holder { name: name.to_owned(), trusted, hosts })
}

/// One entry of the authorities.
struct Entry {
    /// The machine config server's.
    ours: Vec<Certificate>,
    /// The others, whatever they are, as DER.
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

/// The certificates of one entry, as DER, whatever their blocks are called. None if it is no data URL that is understood.
fn certificates(entry: &str) -> Vec<CertificateDer<'static>> {
    let pem = pem(entry).unwrap_or_default();
    let mut certificates = Vec::new();
    let mut rest = &pem[..];
    while let Some(Block { label, contents, rest: after }) = block(rest) {
        rest = after;
        if label.ends_with(b"CERTIFICATE") || Certificate::from_der(&contents).is_some() {
            certificates.push(contents.into());
        }
    }
    certificates
}

fn pem(entry: &str) -> Option<Vec<u8>> {
    let bytes = data_url::decode(&string(find(entry, &["source"])?)?).ok()?;
    let compression = find(entry, &["compression"]).and_then(string);
    if compression.as_deref() != Some("gzip") {
        return Some(bytes);
    }
    let mut pem = Vec::new();
    let decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
    let read = decoder.take(MAX_PEM).read_to_end(&mut pem).ok()?;
    // One that may go on is not understood: what is beyond would be lost.
    (u64::try_from(read).ok()? < MAX_PEM).then_some(pem)
}

/// An entry with another source. What was said of the contents before holds no more.
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

/// Whether a certificate has a name that the machine config server's authorities have: this
/// server's own, those of OpenShift's controller, and those of its installer.
fn is_named_like_ours(der: &CertificateDer<'_>) -> bool {
    Certificate::from_der(der).is_some_and(|certificate| {
        certificate.common_name == "root-ca"
            || certificate.common_name.contains("machine-config-server-ca@")
    })
}

#[cfg(test)]
mod tests;
