//! Whether a machine would boot from a pointer config, and if not, why: the one judge of `certs check`, of the
//! controller, of readiness and of the page.
//!
//! ```text
//!  bytes ─> read ─> PointerConfig, Warnings ─> judge (with what is served) ─> Verdict
//!              ├──> Faults
//!              └──> Fetches, also of a config with faults ─> who trusts whom, and which hosts are asked
//! ```
//!
//! What counts is what Ignition makes of it, so a config is looked at as far as its own spec goes:
//! what that does not know, Ignition ignores. `tests/it/pointer_corpus` holds it against Ignition itself. Who is
//! locked out is judged by [`locked_out`].

mod authority;
mod fault;
mod fetch;
mod pem;
mod token;
mod verdict;
mod walk;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition::{Config, SpecVersion};
use pki::{Certificate, Holder, Lockout, locked_out};
use time::OffsetDateTime;

use self::walk::Walk;

pub use authority::{AuthorityFault, ContentsFault};
pub use fault::{EC2_LIMIT, Fault, HeaderFault, Warning};
pub use fetch::Fetch;
pub use pem::{Block, block};
pub use token::{Admission, admission};
pub use verdict::{Known, Problem, Verdict, faults_of, judge, pools_of};

/// From this size on it is told that there is a limit: two CAs more, as a rotation brings, fit.
const NEAR_EC2_LIMIT: usize = 14 * 1024;

/// What a machine is to do by a pointer config, and whom it trusts for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerConfig {
    /// The spec that it is written in, 2.2 also for 2.0 and 2.1.
    pub spec: SpecVersion,
    /// The configs of pools that it fetches, in their order; never empty.
    pub fetches: Vec<Fetch>,
}

/// What there is to say of a file.
#[derive(Debug, Default)]
pub struct Reading {
    /// What a machine would do; only where there are no faults.
    pub config: Option<PointerConfig>,
    /// The fetches that were come by, also where there are faults, in themselves or elsewhere.
    pub found: Vec<Fetch>,
    /// In the order in which Ignition comes by them.
    pub faults: Vec<Fault>,
    /// Likewise.
    pub warnings: Vec<Warning>,
}

/// Reads a pointer config as Ignition would.
#[must_use]
pub fn read(user_data: &[u8]) -> Reading {
    let mut reading = Reading::default();
    if user_data.len() >= NEAR_EC2_LIMIT {
        reading.warnings.push(Warning::Size(user_data.len()));
    }
    match parse(user_data) {
        Ok((spec, config)) => {
            let Walk { fetches, faults, warnings, .. } = Walk::through(spec, &config);
            reading.found.clone_from(&fetches);
            reading.config = faults.is_empty().then_some(PointerConfig { spec, fetches });
            reading.faults = faults;
            reading.warnings.extend(warnings);
        }
        Err(fault) => reading.faults.push(fault),
    }
    reading
}

/// Those who fetch by the file `name`, one for each host and what is trusted when it is asked.
#[must_use]
pub fn holders(name: &str, fetches: &[Fetch]) -> Vec<Holder> {
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

/// Why a machine that is given the file `name` would refuse `chain`: each reason once. `fetches` are those that the
/// chain is served for.
#[must_use]
pub fn refusals(
    name: &str,
    fetches: &[Fetch],
    chain: &[Certificate],
    now: OffsetDateTime,
) -> Vec<Lockout> {
    let mut found = locked_out(chain, &holders(name, fetches), now);
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

#[cfg(test)]
mod tests;
