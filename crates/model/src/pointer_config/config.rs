//! A pointer config, read once: as it is written, and as Ignition reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition::{Config, SpecVersion};
use pki::{Certificate, Holder, Host};

use super::fault::{Fault, Warning};
use super::fetch::Fetch;
use super::walk::Walk;
use super::written::{MAX_BYTES, Written};

/// Size from which on a warning names the limit: the two CAs that a rotation adds still fit.
const NEAR_EC2_LIMIT: usize = 14 * 1024;

/// User data of any kind, by which a machine is to fetch its config and know whom to trust for it.
#[derive(Debug)]
pub struct PointerConfig<'a> {
    bytes: &'a [u8],
    written: Option<Written<'a>>,
    fetches: Vec<Fetch>,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

impl<'a> PointerConfig<'a> {
    /// Reads user data of any kind, as it is written and as Ignition would.
    #[must_use]
    pub fn read(user_data: &'a [u8]) -> Self {
        let mut warnings = Vec::new();
        if user_data.len() >= NEAR_EC2_LIMIT {
            warnings.push(Warning::Size(user_data.len()));
        }
        let (mut fetches, mut faults) = (Vec::new(), Vec::new());
        match parse(user_data) {
            Ok((spec, config)) => {
                let walk = Walk::through(spec, &config);
                (fetches, faults) = (walk.fetches, walk.faults);
                warnings.extend(walk.warnings);
            }
            Err(fault) => faults.push(fault),
        }
        Self { bytes: user_data, written: Written::read(user_data), fetches, faults, warnings }
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The configs of pools that a machine fetches by it, in their order: some, or none where there are faults.
    #[must_use]
    pub fn fetches(&self) -> &[Fetch] {
        if self.faults.is_empty() { &self.fetches } else { &[] }
    }

    /// Why no machine boots from it, whatever is served, in the order in which Ignition comes by them.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// What keeps no machine from booting today, likewise.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The fetches that Ignition came by, also where there are faults, in themselves or elsewhere. None of what is too
    /// large to be user data.
    pub(super) fn found(&self) -> &[Fetch] {
        if self.is_too_large() { &[] } else { &self.fetches }
    }

    /// `None` where it is no Ignition config, or too large to be user data.
    pub(super) fn written(&self) -> Option<Written<'a>> {
        self.written
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.size() > MAX_BYTES
    }

    /// The authorities that a machine trusts when it fetches by it, ours or not, each once; all that are written there
    /// where it fetches nothing that is understood.
    #[must_use]
    pub fn trusted(&self) -> Vec<Certificate> {
        if self.found().is_empty() {
            return self.cas();
        }
        let mut trusted = Vec::new();
        for ca in self.found().iter().flat_map(|fetch| &fetch.trusted) {
            if !trusted.contains(ca) {
                trusted.push(ca.clone());
            }
        }
        trusted
    }

    /// All authorities that are written in it itself, ours or not.
    #[must_use]
    pub fn cas(&self) -> Vec<Certificate> {
        self.written.map(|written| written.cas()).unwrap_or_default()
    }

    /// Whether it fetches from `url`.
    #[must_use]
    pub fn fetches_from(&self, url: &str) -> bool {
        if !self.found().is_empty() {
            return self.found().iter().any(|fetch| fetch.url == url);
        }
        self.written.is_some_and(|written| written.sources().any(|source| source == url))
    }

    /// Where it would fetch the config of `pool`: by the server that it fetches from.
    #[must_use]
    pub fn url_for(&self, pool: &str) -> Option<String> {
        let url = self.written?.https_urls().next()?;
        Some(format!("https://{}/config/{pool}", url.authority()?))
    }

    /// The hosts that it fetches from, in their order. Where no Ignition that is known here fetches anything by it, those
    /// that are written in it.
    #[must_use]
    pub fn hosts(&self) -> Vec<Host> {
        if !self.found().is_empty() {
            return self.found().iter().map(|fetch| fetch.host.clone()).collect();
        }
        self.written.map(|written| written.hosts()).unwrap_or_default()
    }

    /// Those who may be locked out by it, called `name`: one for each host and what is trusted when it is asked. None if
    /// no certificate matters to it: it fetches nothing over TLS, or names no authorities that are understood.
    #[must_use]
    pub fn holders(&self, name: &str) -> Vec<Holder> {
        if self.found().is_empty() {
            return self.written_holder(name).into_iter().collect();
        }
        let mut holders = holders_of(name, self.found());
        // Whom a machine trusts by authorities that it fetches is not known; that it needs some is.
        holders.retain(|holder| !holder.trusted.is_empty() || self.faults.is_empty());
        holders
    }

    /// The same where no Ignition that is known here fetches anything by it: a newer one may.
    fn written_holder(&self, name: &str) -> Option<Holder> {
        let written = self.written?;
        let (hosts, trusted) = (written.https_hosts(), written.cas());
        let matters = !hosts.is_empty() && !trusted.is_empty();
        matters.then(|| Holder { name: name.to_owned(), trusted, hosts })
    }
}

/// Those who fetch by the file `name`, one for each host and what is trusted when it is asked.
pub(super) fn holders_of(name: &str, fetches: &[Fetch]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = Vec::new();
    for Fetch { host, trusted, .. } in fetches {
        let (name, hosts) = (name.to_owned(), vec![host.clone()]);
        let holder = Holder { name, trusted: trusted.clone(), hosts };
        if !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    holders
}

/// The config as its own spec has it.
fn parse(user_data: &[u8]) -> Result<(SpecVersion, serde_json::Value), Fault> {
    let start = user_data.trim_ascii_start();
    match start {
        [] => return Err(Fault::Empty),
        [0x1f, 0x8b, ..] => return Err(Fault::Gzip),
        [b'#' | b'<', ..] => return Err(Fault::Script),
        _ => {}
    }
    if start[0] != b'{' && is_encoded(start) {
        return Err(Fault::Base64);
    }
    Config::fields(user_data).map_err(Fault::Invalid)
}

/// Whether a text is the base64 of an object in JSON.
fn is_encoded(text: &[u8]) -> bool {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(text).is_ok_and(|bytes| bytes.trim_ascii_start().starts_with(b"{"))
}
