//! Whether a machine would boot from a pointer config: by the certificates and tokens of a state
//! directory or a cluster, or by a server that runs.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use time::OffsetDateTime;

use super::kept::{self, Place, Served};
use super::print_line;
use super::probe::{self, Address};
use super::tokens;
use crate::ignition::secrets::redacted;
use crate::pki::Lockout;
use crate::pointer_check::{self, Admission, Fetch, Known, Problem, Reading};
use crate::user_data::MOST_BYTES;

/// What a pointer config is judged by.
#[derive(Debug, Clone)]
pub enum Against {
    /// By what is kept there to be served, of a folder with the pools of these manifests.
    Place(Place, Option<PathBuf>),
    /// By what is served there.
    Server(Address),
}

/// Tells what is wrong with `file`, or that a machine boots from it, one line each.
///
/// # Errors
/// The file cannot be read, there is nothing to judge it by, or no machine would boot from it.
pub fn check_pointer(file: &Path, against: &Against, now: OffsetDateTime) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = read(file).with_context(|| format!("--pointer {name}"))?;
    let faults = match against {
        Against::Place(place, manifests) => {
            by_place(&name, &text, (place, manifests.as_deref()), now)?
        }
        Against::Server(address) => by_server(&name, &text, address, now)?,
    };
    match faults {
        0 => Ok(()),
        many => bail!("{name}: no machine would boot from it: faults: {many}"),
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST_BYTES {
        bail!("it has more than {MOST_BYTES} bytes, which no platform takes as user data");
    }
    Ok(text)
}

/// Returns the number of faults, all of which it has told.
fn by_place(
    name: &str,
    text: &[u8],
    (place, manifests): (&Place, Option<&Path>),
    now: OffsetDateTime,
) -> anyhow::Result<usize> {
    const ELSE: &str = "--connect HOST:PORT asks a server that runs";
    let in_itself = pointer_check::read(text);
    if in_itself.config.is_none() {
        return Ok(tell_faults(name, &in_itself));
    }
    let Served { place: kept, chain, pools } =
        kept::served(place, manifests).map_err(|error| anyhow!("{error:#}; {ELSE}"))?;
    if chain.is_empty() {
        bail!("{kept}: there is no serving pair; {ELSE}");
    }
    let records = match tokens::read(place) {
        Ok(records) => Some(records),
        // Whoever looks at certificates need not have a right to tokens.
        Err(error) if matches!(place, Place::Cluster { .. }) => {
            print_line(&format!("{name}: warning: its token is not looked at: {error:#}"));
            None
        }
        Err(error) => bail!("{error:#}; {ELSE}"),
    };
    let known = Known { chain: Some(&chain), records: records.as_ref(), pools: &pools };
    let verdict = pointer_check::judge(name, text, known, now);
    for warning in &verdict.warnings {
        print_line(&format!("{name}: warning: {warning}"));
    }
    for problem in &verdict.problems {
        print_line(&told(name, &kept, problem));
    }
    for (fetch, admission) in &verdict.fetches {
        let url = &redacted(&fetch.url.to_string()).into_owned();
        let by = match admission {
            Admission::Open => "certificates",
            Admission::Proven => "certificates and tokens",
            Admission::Unjudged => {
                print_line(&format!(
                    "{name}: warning: the token for {url} is signed by another issuer, and not \
                     looked at"
                ));
                "certificates"
            }
            Admission::Refused(_) => continue,
        };
        if verdict.problems.is_empty() {
            print_line(&format!("{name}: boots from {url}, by the {by} of {kept}"));
        }
    }
    Ok(verdict.problems.len())
}

/// A problem of the file `name` as a line.
fn told(name: &str, place: &str, problem: &Problem) -> String {
    match problem {
        // It has the name already.
        Problem::LockedOut(lockout) => lockout.to_string(),
        Problem::Refused { url, refusal } => {
            let then = if refusal.may_heal() { "asks again until it is" } else { "gives up" };
            let by = format!("by the tokens of {place}");
            let url = redacted(&url.to_string()).into_owned();
            format!("{name}: no config from {url}, {by}: {refusal}: a machine {then}")
        }
        _ => format!("{name}: {problem}"),
    }
}

/// Returns the number of faults, all of which it has told, as the warnings.
fn tell_faults(name: &str, reading: &Reading) -> usize {
    for warning in &reading.warnings {
        print_line(&format!("{name}: warning: {warning}"));
    }
    for fault in &reading.faults {
        print_line(&format!("{name}: {fault}"));
    }
    reading.faults.len()
}

/// Returns the number of faults, all of which it has told.
fn by_server(
    name: &str,
    text: &[u8],
    address: &Address,
    now: OffsetDateTime,
) -> anyhow::Result<usize> {
    let reading = pointer_check::read(text);
    let mut faults = tell_faults(name, &reading);
    let Some(config) = reading.config else { return Ok(faults) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut told: Vec<Lockout> = Vec::new();
    for fetch in &config.fetches {
        let judge =
            |chain: &_| pointer_check::refusals(name, std::slice::from_ref(fetch), chain, now);
        let accept = pointer_check::accept(config.spec);
        let asked = probe::ask(address, fetch, &accept, |chain| judge(chain).is_empty());
        let probe = runtime.block_on(asked).with_context(|| format!("--connect {address}"))?;
        let mut refusals = judge(&probe.chain);
        refusals.retain(|refusal| !told.contains(refusal));
        tell(&refusals);
        faults += refusals.len();
        told.extend(refusals);
        if let Some(status) = probe.status {
            faults += usize::from(status != http::StatusCode::OK);
            print_line(&format!("{name}: {}", answer(fetch, address, status)));
        }
    }
    Ok(faults)
}

fn tell(refusals: &[Lockout]) {
    for refusal in refusals {
        print_line(&refusal.to_string());
    }
}

/// What a machine makes of a status.
fn answer(fetch: &Fetch, address: &Address, status: http::StatusCode) -> String {
    let (url, code) = (redacted(&fetch.url.to_string()).into_owned(), status.as_u16());
    if status == http::StatusCode::OK {
        format!("boots from {url}, as {address} answers")
    } else if status.is_server_error() {
        format!("{address} answers {code} for {url}: a machine asks again until that is 200")
    } else {
        format!("{address} answers {code} for {url}: a machine gives up")
    }
}
