//! Whether a machine would boot from a pointer config, and if not, why: what `certs check --pointer`
//! tells of a file before it is given to a machine.
//!
//! ```text
//!  bytes ─> read ─> PointerConfig, Warnings ─> refusals (with a chain) ─> Lockouts
//!              └──> Faults                      └─> admission (with records of tokens) ─> Admission
//! ```
//!
//! What counts is what Ignition makes of it, so a config is looked at as far as its own spec goes:
//! what that does not know, Ignition ignores. Who is locked out is judged by [`locked_out`].

mod authority;
mod token;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use time::OffsetDateTime;

use crate::ignition::{self, Config, SpecVersion};
use crate::pki::{Certificate, Holder, Host, Lockout, USER_DATA_LIMITS, locked_out};

pub use authority::AuthorityFault;
pub use token::{Admission, admission};

/// What EC2 takes as user data, in bytes, before it is encoded for the request.
pub const EC2_LIMIT: usize = USER_DATA_LIMITS[0].1;
/// From this size on it is told that there is a limit: two CAs more, as a rotation brings, fit.
const NEAR_EC2_LIMIT: usize = 14 * 1024;

/// What a machine is to do by a pointer config, and whom it trusts for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerConfig {
    /// The spec that it is written in, 2.2 also for 2.0 and 2.1.
    pub spec: SpecVersion,
    /// The configs of pools that it fetches, in their order; never empty.
    pub fetches: Vec<Fetch>,
    /// The CAs that a machine reads from it.
    pub trusted: Vec<Certificate>,
}

/// A pool's config that is fetched over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// As it is written.
    pub url: http::Uri,
    /// The host in it, which the serving certificate has to name.
    pub host: Host,
    /// The pool in it.
    pub pool: String,
    /// What is sent along, names and values.
    pub headers: Vec<(String, String)>,
}

/// Why no machine can boot from a file, or should not. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// A shell script, cloud-init's data, PowerShell.
    #[error("it is no Ignition config, but a script or another tool's user data")]
    Script,
    /// Compressed as a whole.
    #[error("it is compressed with gzip, which Ignition does not unpack: give it as it is")]
    Gzip,
    /// Taken from a Secret as it stands there.
    #[error("it is encoded in base64, as in a Secret: decode it first (base64 -d)")]
    Base64,
    /// Bytes that are no text.
    #[error("it is no text")]
    NoText,
    /// No JSON, no spec that is known, or against its rules.
    #[error("{0}")]
    Invalid(ignition::Error),
    /// A config that leads nowhere.
    #[error(
        "it is no pointer config: neither ignition.config.{list} nor ignition.config.replace has \
         https://HOST:22623/config/POOL"
    )]
    NoPointer {
        /// Where its spec has it.
        list: &'static str,
    },
    /// A config that is fetched in plain HTTP.
    #[error("{0} has no TLS: whoever is on the way reads the machine's secrets, and can change it")]
    NoTls(http::Uri),
    /// The path ends before the pool.
    #[error("{0} names no pool: it has to end in /config/POOL")]
    NoPool(http::Uri),
    /// A host that no certificate can name.
    #[error("{0} has a host that no certificate can name")]
    NoHost(http::Uri),
    /// Nothing to trust the server by.
    #[error(
        "it names no certificate authorities in ignition.security.tls: a machine would trust those \
         of its image, which do not know this server's"
    )]
    NoAuthorities,
    /// Ignition gives up at the first entry that it cannot read.
    #[error("ignition.security.tls.certificateAuthorities[{index}] {fault}")]
    Authority {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        fault: AuthorityFault,
    },
}

/// What is told and keeps no machine from booting today. One line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// It is nearly as large as a platform takes, or larger.
    Size(usize),
    /// An entry that is fetched itself.
    RemoteAuthority(usize),
    /// An entry holds more certificates than Ignition reads there.
    OnlyFirst {
        /// Which entry.
        index: usize,
        /// How many it holds.
        present: usize,
    },
    /// Something else that is fetched.
    OtherSource(String),
    /// What is fetched is compared with a hash.
    Hashed(http::Uri),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) if *bytes > EC2_LIMIT => {
                write!(f, "it has {bytes} bytes, and EC2 takes {EC2_LIMIT} of user data")
            }
            Self::Size(bytes) => {
                write!(f, "it has {bytes} bytes, of {EC2_LIMIT} that EC2 takes of user data")
            }
            Self::RemoteAuthority(index) => {
                write!(f, "certificateAuthorities[{index}] is fetched itself, and not looked at")
            }
            Self::OnlyFirst { index, present } => write!(
                f,
                "certificateAuthorities[{index}] holds {present} certificates, of which Ignition \
                 reads only the first in spec 2"
            ),
            Self::OtherSource(source) => write!(f, "{source} is fetched too, and not looked at"),
            Self::Hashed(url) => {
                write!(f, "{url} is compared with a hash, which fails once the pool has changed")
            }
        }
    }
}

/// What there is to say of a file.
#[derive(Debug)]
pub struct Reading {
    /// What a machine would do; only where there are no faults.
    pub config: Option<PointerConfig>,
    /// In the order of the file.
    pub faults: Vec<Fault>,
    /// In the order of the file.
    pub warnings: Vec<Warning>,
}

/// Reads a pointer config as Ignition would.
#[must_use]
pub fn read(user_data: &[u8]) -> Reading {
    let mut reading = Reading { config: None, faults: Vec::new(), warnings: Vec::new() };
    if user_data.len() >= NEAR_EC2_LIMIT {
        reading.warnings.push(Warning::Size(user_data.len()));
    }
    match parse(user_data) {
        Ok((spec, config)) => {
            let fetches = reading.fetches(spec, &config);
            let trusted = reading.authorities(spec, &config);
            if reading.faults.is_empty() {
                reading.config = Some(PointerConfig { spec, fetches, trusted });
            }
        }
        Err(fault) => reading.faults.push(fault),
    }
    reading
}

/// Why a machine that is given `config` as the file `name` would refuse `chain`: each reason once.
/// `fetches` are those that the chain is served for.
#[must_use]
pub fn refusals(
    name: &str,
    config: &PointerConfig,
    fetches: &[Fetch],
    chain: &[Certificate],
    now: OffsetDateTime,
) -> Vec<Lockout> {
    // A holder for each host: several may be missing.
    let holder = |fetch: &Fetch| Holder {
        name: name.to_owned(),
        trusted: config.trusted.clone(),
        hosts: vec![fetch.host.clone()],
    };
    let mut found = locked_out(chain, &fetches.iter().map(holder).collect::<Vec<_>>(), now);
    found.dedup();
    found
}

/// What Ignition sends as `Accept` when it fetches by a config of this spec.
#[must_use]
pub fn accept(spec: SpecVersion) -> String {
    let kind = "application/vnd.coreos.ignition+json";
    if spec == SpecVersion::V2_2 {
        return format!("{kind}; version={spec}, {kind}; version=1; q=0.5, */*; q=0.1");
    }
    format!("{kind};version={spec}, */*;q=0.1")
}

/// The config as its own spec has it.
fn parse(user_data: &[u8]) -> Result<(SpecVersion, Value), Fault> {
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
    let text = std::str::from_utf8(user_data).map_err(|_| Fault::NoText)?;
    let as_written = |spec| {
        let value = serde_json::from_str(text).map_err(|error| Fault::Invalid(error.into()))?;
        Ok((spec, value))
    };
    let config = match Config::parse(text) {
        Ok(config) => config,
        // It is valid, only spec 3 has no words for some of it.
        Err(ignition::Error::NotLiftable { .. }) => return as_written(SpecVersion::V2_2),
        Err(error) => return Err(Fault::Invalid(error)),
    };
    let spec = config.declared();
    let lowered = config.lower(spec).ok().and_then(|lowered| serde_json::to_value(lowered).ok());
    lowered.map_or_else(|| as_written(spec), |value| Ok((spec, value)))
}

/// Whether a text is the base64 of an object in JSON.
fn is_encoded(text: &[u8]) -> bool {
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(text).is_ok_and(|bytes| bytes.trim_ascii_start().starts_with(b"{"))
}

impl Reading {
    /// The configs of pools that are fetched; others and faults are noted.
    fn fetches(&mut self, spec: SpecVersion, config: &Value) -> Vec<Fetch> {
        let list = if spec == SpecVersion::V2_2 { "append" } else { "merge" };
        let section = &config["ignition"]["config"];
        let replace = &section["replace"];
        // What replaces the config leaves nothing to be merged.
        let resources: Vec<&Value> = match source(replace) {
            Some(_) => vec![replace],
            None => section[list].as_array().into_iter().flatten().collect(),
        };
        let mut fetches = Vec::new();
        let faults = self.faults.len();
        for resource in resources {
            let Some(source) = source(resource) else { continue };
            match source.parse::<http::Uri>() {
                Ok(url) if url.path().starts_with("/config/") => {
                    if resource["verification"]["hash"].is_string() {
                        self.warnings.push(Warning::Hashed(url.clone()));
                    }
                    match fetch(url, resource) {
                        Ok(fetch) => fetches.push(fetch),
                        Err(fault) => self.faults.push(fault),
                    }
                }
                _ => self.warnings.push(Warning::OtherSource(shortened(source))),
            }
        }
        if fetches.is_empty() && self.faults.len() == faults {
            self.faults.push(Fault::NoPointer { list });
        }
        fetches
    }

    /// The CAs that are trusted; faults are noted.
    fn authorities(&mut self, spec: SpecVersion, config: &Value) -> Vec<Certificate> {
        let entries = config["ignition"]["security"]["tls"]["certificateAuthorities"].as_array();
        let entries = entries.map_or(&[][..], Vec::as_slice);
        if entries.is_empty() {
            self.faults.push(Fault::NoAuthorities);
        }
        let mut trusted = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let Some(source) = source(entry).filter(|source| source.starts_with("data:")) else {
                self.warnings.push(Warning::RemoteAuthority(index));
                continue;
            };
            let compression = entry["compression"].as_str();
            let hash = entry["verification"]["hash"].as_str();
            let certificates = authority::contents(source, compression, hash)
                .and_then(|pem| authority::certificates(&pem, spec));
            match certificates {
                Ok((read, present)) => {
                    if read.len() < present {
                        self.warnings.push(Warning::OnlyFirst { index, present });
                    }
                    trusted.extend(read);
                }
                Err(fault) => self.faults.push(Fault::Authority { index, fault }),
            }
        }
        trusted
    }
}

/// Where a resource comes from, `None` from nowhere.
fn source(resource: &Value) -> Option<&str> {
    resource["source"].as_str().filter(|source| !source.is_empty())
}

fn fetch(url: http::Uri, resource: &Value) -> Result<Fetch, Fault> {
    if !url.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
        return Err(Fault::NoTls(url));
    }
    let pool = url.path().trim_start_matches("/config/").trim_end_matches('/');
    if pool.is_empty() || pool.contains('/') {
        return Err(Fault::NoPool(url));
    }
    let Some(host) = url.host().and_then(|host| host.parse().ok()) else {
        return Err(Fault::NoHost(url));
    };
    let headers = resource["httpHeaders"].as_array().into_iter().flatten().filter_map(|header| {
        let value = header["value"].as_str()?;
        Some((header["name"].as_str()?.to_owned(), value.to_owned()))
    });
    // As a server reads it.
    let pool = percent_decode_str(pool).decode_utf8_lossy().into_owned();
    Ok(Fetch { host, pool, headers: headers.collect(), url })
}

/// A source that fits into a line; a data URL may be a whole config.
fn shortened(source: &str) -> String {
    const MOST: usize = 60;
    match source.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &source[..end]),
        None => source.to_owned(),
    }
}

#[cfg(test)]
mod tests;
