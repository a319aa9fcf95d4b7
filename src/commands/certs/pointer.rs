//! Checks if a machine would boot from a pointer config, by the certificates and tokens of a state directory or a
//! cluster, or by a running server.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use files::bounded;
use inspect::{Clocks, judge};
use model::pointer_config::{Admission, Fetch, MAX_BYTES, PointerConfig, Problem, ServerState};
use pki::Lockout;
use secrets::redacted;
use serde::Serialize;
use time::OffsetDateTime;

use super::settings::CheckSettings;
use crate::commands::probe::{self, Address};
use crate::commands::stores::state_store::unless_forbidden;
use crate::commands::{print_json, print_line};
use crate::source::manifest::config_warnings;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedPointer {
    name: String,
    /// True if a machine boots from it.
    boots: bool,
    /// Reasons why no machine boots.
    faults: Vec<String>,
    /// Remarks that keep no machine from booting.
    warnings: Vec<String>,
    /// Fields without effect.
    ignored: Vec<String>,
    /// Servers from which a machine boots.
    from: Vec<String>,
}

/// Prints the faults of `file`, or that a machine boots from it, as lines or JSON. It is checked against a running
/// server, or else against the state at a location; for a directory with the pools of the manifests.
///
/// # Errors
/// The file or the reference is unreadable, or no machine would boot; with `--strict`, a part of it has no effect.
pub(super) fn check_pointer(
    file: &Path,
    settings: &CheckSettings,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = read(file).with_context(|| format!("--pointer {name}"))?;
    let config = PointerConfig::read(&text);
    let ignored = config_warnings(&String::from_utf8_lossy(&text));
    let mut checked = CheckedPointer { name: name.clone(), ignored, ..CheckedPointer::default() };
    match &settings.connect {
        Some(address) => by_server(&mut checked, &config, address, now)?,
        None => by_state(&mut checked, &config, settings, now)?,
    }
    // A URL can contain a password.
    for line in
        [&mut checked.faults, &mut checked.warnings, &mut checked.from].into_iter().flatten()
    {
        *line = redacted(line).into_owned();
    }
    checked.boots = checked.faults.is_empty();
    if settings.json {
        print_json(&checked)?;
    } else {
        checked.print_lines();
    }
    match (checked.faults.len(), checked.ignored.len()) {
        (0, ignored) if settings.strict && ignored > 0 => {
            bail!("{name}: --strict refuses fields without effect: {ignored}")
        }
        (0, _) => Ok(()),
        (many, _) => bail!("{name}: no machine can boot from it: faults: {many}"),
    }
}

impl CheckedPointer {
    fn print_lines(&self) {
        let Self { name, faults, warnings, ignored, from, .. } = self;
        for warning in warnings.iter().chain(ignored) {
            print_line(&format!("{name}: warning: {warning}"));
        }
        for line in faults.iter().chain(from) {
            print_line(line);
        }
    }

    /// Adds faults and remarks of the file itself.
    fn take(&mut self, config: &PointerConfig<'_>) {
        self.warnings.extend(config.warnings().iter().map(ToString::to_string));
        self.faults.extend(config.faults().iter().map(|fault| format!("{}: {fault}", self.name)));
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let text = bounded::read_start(file, MAX_BYTES as u64 + 1)?;
    if text.len() > MAX_BYTES {
        bail!("has more than {MAX_BYTES} bytes, which no platform accepts as user data");
    }
    Ok(text)
}

fn by_state(
    checked: &mut CheckedPointer,
    config: &PointerConfig<'_>,
    settings: &CheckSettings,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    const ELSE: &str = "check against a running server with --connect HOST:PORT";
    let name = checked.name.clone();
    if !config.faults().is_empty() {
        checked.take(config);
        return Ok(());
    }
    let or_else = |error| anyhow!("{error:#}; {ELSE}");
    let store = settings.place.open().map_err(or_else)?;
    let seen = store.observe(settings.manifests.as_deref()).map_err(or_else)?;
    let chain = seen.chain().map_err(or_else)?;
    let kept = seen.place;
    if chain.is_empty() {
        bail!("{kept}: no serving certificate found; {ELSE}");
    }
    let records = unless_forbidden(&*store, store.records()).map_err(or_else)?;
    if let Err(error) = &records {
        checked.warnings.push(format!("its token is not checked: {error:#}"));
    }
    let records = records.ok();
    let known = ServerState { chain: Some(&chain), records: records.as_ref(), pools: &seen.pools };
    let verdict = config.verdict(&name, known, now);
    checked.take(config);
    checked.faults.extend(verdict.problems.iter().map(|problem| reported(&name, &kept, problem)));
    for (fetch, admission) in &verdict.fetches {
        let url = &fetch.url;
        let by = match admission {
            Admission::Open => "certificates",
            Admission::Proven => "certificates and tokens",
            Admission::Unjudged => {
                checked.warnings.push(format!(
                    "the token for {url} is signed by another issuer and is not checked"
                ));
                "certificates"
            }
            Admission::Refused(_) => continue,
        };
        if verdict.problems.is_empty() {
            checked.from.push(format!("{name}: boots from {url}, according to the {by} of {kept}"));
        }
    }
    Ok(())
}

/// Formats a problem of the file `name`.
fn reported(name: &str, place: &str, problem: &Problem<'_>) -> String {
    match problem {
        // It contains the name already.
        Problem::LockedOut(lockout) => lockout.to_string(),
        Problem::Refused(Fetch { url, .. }, refusal) => {
            let then = if refusal.is_temporary() { "retries until it is" } else { "gives up" };
            let by = format!("according to the tokens of {place}");
            format!("{name}: no config from {url}, {by}: {refusal}: a machine {then}")
        }
        _ => format!("{name}: {problem}"),
    }
}

fn by_server(
    checked: &mut CheckedPointer,
    config: &PointerConfig<'_>,
    address: &Address,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let name = checked.name.clone();
    checked.take(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clocks = Clocks { machine: now, right: now };
    for fetch in config.fetches() {
        let is_trusted = |shown: &_| judge(fetch, shown, clocks).cause.is_none();
        let asked = runtime.block_on(probe::ask(address, fetch, is_trusted));
        let shown = asked.with_context(|| format!("--connect {address}"))?;
        let judgement = judge(fetch, &shown, clocks);
        for reason in judgement.refusals {
            let refusal = Lockout { holder: name.clone(), reason }.to_string();
            if !checked.faults.contains(&refusal) {
                checked.faults.push(refusal);
            }
        }
        let Some(answer) = shown.answer else { continue };
        let (url, code) = (&fetch.url, answer.status.as_u16());
        let Some(cause) = judgement.cause else {
            checked.from.push(format!("{name}: boots from {url}, as {address} answers"));
            continue;
        };
        let then = if cause.is_retried() { "retries until it gets 200" } else { "gives up" };
        let fault = format!("{name}: {address} answers {code} for {url}: a machine {then}");
        checked.faults.push(fault);
    }
    Ok(())
}
