//! A pointer config, parsed once: as written, and as Ignition reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition::SpecVersion;
use pki::{Certificate, Host, TrustHolder};

use super::fault::{Fault, Warning};
use super::fetch::Fetch;
use super::fields::{fields, is_butane};
use super::walk::IgnitionWalk;
use super::written::{MAX_BYTES, WrittenConfig};

/// Size in bytes from which on a warning names the limit: the two CAs that a rotation adds still fit.
const NEAR_EC2_LIMIT: usize = 14 * 1024;

/// User data of any kind, from which a machine gets the URL of its config and the CAs to trust for it.
#[derive(Debug)]
pub struct PointerConfig<'a> {
    bytes: &'a [u8],
    /// The parsed text; `None` if it is no Ignition config, or too large for user data.
    pub(super) written: Option<WrittenConfig<'a>>,
    fetches: Vec<Fetch>,
    faults: Vec<Fault>,
    warnings: Vec<Warning>,
}

/// URL of a pool's config at a server.
pub fn pool_url(host: &Host, port: u16, pool: &str) -> String {
    format!("https://{host}:{port}/config/{pool}")
}

impl<'a> PointerConfig<'a> {
    /// Parses user data of any kind, as written and as Ignition would.
    pub fn read(user_data: &'a [u8]) -> Self {
        let (bytes, written) = (user_data, WrittenConfig::read(user_data));
        let (fetches, faults, warnings) = (Vec::new(), Vec::new(), Vec::new());
        let mut read = Self { bytes, written, fetches, faults, warnings };
        if bytes.len() >= NEAR_EC2_LIMIT {
            read.warnings.push(Warning::Size(bytes.len()));
        }
        match parse(bytes) {
            Ok((spec, config)) => {
                let walk = IgnitionWalk::through(spec, &config);
                (read.fetches, read.faults) = (walk.fetches, walk.faults);
                read.warnings.extend(walk.warnings);
            }
            Err(fault) => read.faults.push(fault),
        }
        read
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Fetches of pools' configs that a machine makes, in their order; empty if there are faults.
    pub fn fetches(&self) -> &[Fetch] {
        if self.faults.is_empty() { &self.fetches } else { &[] }
    }

    /// Reasons why no machine boots from it, regardless of the server, in the order in which Ignition meets them.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Remarks that keep no machine from booting, in the same order.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Fetches that Ignition meets, even if there are faults. Empty if the text is too large for user data.
    pub(super) fn found(&self) -> &[Fetch] {
        if self.is_too_large() { &[] } else { &self.fetches }
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.size() > MAX_BYTES
    }

    /// CAs that a machine trusts in its fetches, of any origin, each once; if no fetch is understood, all CAs in the
    /// text.
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

    /// All CAs in its own text, of any origin.
    pub fn cas(&self) -> Vec<Certificate> {
        self.written.map(|written| written.cas()).unwrap_or_default()
    }

    /// Returns `true` if it fetches from `url`.
    pub fn fetches_from(&self, url: &str) -> bool {
        if !self.found().is_empty() {
            return self.found().iter().any(|fetch| fetch.url == url);
        }
        self.written.is_some_and(|written| written.sources().any(|source| source == url))
    }

    /// URL of `pool`'s config at the server that it fetches from.
    pub fn url_for(&self, pool: &str) -> Option<String> {
        let url = self.written?.https_urls().next()?;
        Some(format!("https://{}/config/{pool}", url.authority()?))
    }

    /// Hosts that it fetches from, in their order. If no known Ignition fetches anything, the hosts in the text.
    pub fn hosts(&self) -> Vec<Host> {
        if !self.found().is_empty() {
            return self.found().iter().map(|fetch| fetch.host.clone()).collect();
        }
        self.written.map(|written| written.hosts()).unwrap_or_default()
    }

    /// Holders that it can lock out, with this `name`: one for each host, with the CAs trusted for it. Empty if no
    /// certificate matters: it fetches nothing over TLS, or has no readable CAs.
    pub fn holders(&self, name: &str) -> Vec<TrustHolder> {
        if self.found().is_empty() {
            return self.written_holder(name).into_iter().collect();
        }
        let mut holders = holders_of(name, self.found());
        // The CAs that a machine fetches are unknown; if it needs some, it is a holder.
        holders.retain(|holder| !holder.trusted.is_empty() || self.faults.is_empty());
        holders
    }

    /// The holder by the text, if no known Ignition fetches anything: a newer one may.
    fn written_holder(&self, name: &str) -> Option<TrustHolder> {
        let written = self.written?;
        let (hosts, trusted) = (written.https_hosts(), written.cas());
        let matters = !hosts.is_empty() && !trusted.is_empty();
        matters.then(|| TrustHolder { name: name.to_owned(), trusted, hosts })
    }
}

/// Holders of the file `name`, one for each host with the CAs trusted for it.
pub(super) fn holders_of(name: &str, fetches: &[Fetch]) -> Vec<TrustHolder> {
    let mut holders: Vec<TrustHolder> = Vec::new();
    for Fetch { host, trusted, .. } in fetches {
        let (name, hosts) = (name.to_owned(), vec![host.clone()]);
        let holder = TrustHolder { name, trusted: trusted.clone(), hosts };
        if !holders.contains(&holder) {
            holders.push(holder);
        }
    }
    holders
}

fn parse(user_data: &[u8]) -> Result<(SpecVersion, serde_json::Value), Fault> {
    let start = user_data.trim_ascii_start();
    match start {
        [] => return Err(Fault::Empty),
        [0x1f, 0x8b, ..] => return Err(Fault::Gzip),
        [b'#', b'!', ..] | [b'<', ..] => return Err(Fault::Script),
        _ if start.starts_with(b"#cloud-config") => return Err(Fault::Script),
        _ => {}
    }
    if start[0] == b'#' && !is_butane(user_data) {
        return Err(Fault::Script);
    }
    if start[0] != b'{' && is_encoded(start) {
        return Err(Fault::Base64);
    }
    fields(user_data)
}

/// Returns `true` if a text is the base64 of a JSON object.
fn is_encoded(text: &[u8]) -> bool {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(text).is_ok_and(|bytes| bytes.trim_ascii_start().starts_with(b"{"))
}
