//! A machine's page: each request with what it got, why the machine is stuck, and the command that looks further.

use askama::Template;
use ignition::SpecVersion;
use model::ledger::{Failed, Outcome, Severity, Visit, VisitKind};
use time::OffsetDateTime;

use super::frame::{Frame, pool_path};
use super::runbook::Advice;
use super::when::when;
use crate::overview::{MachineLine, Server};

/// Contents of the page of one machine.
#[derive(Debug)]
pub struct MachineView<'a> {
    /// Time of this state.
    pub at: OffsetDateTime,
    /// Server that reports the state.
    pub server: &'a Server,
    /// Entry of the machine.
    pub line: &'a MachineLine,
    /// Its requests and handshakes at this server, the latest first.
    pub visits: &'a [Visit],
    /// True if the requested pool exists.
    pub is_pool_known: bool,
    /// True if other servers have a part of the boot ledger.
    pub has_peers: bool,
    /// Host and port with TLS that machines use, such as `mcs.example.com:22623`; the host is `HOST` if it is not known.
    pub authority: &'a str,
}

/// The page of one machine.
///
/// # Errors
/// It cannot be formatted.
pub fn machine_page(view: &MachineView<'_>) -> Result<String, askama::Error> {
    let address = view.line.machine.address.to_string();
    let path = format!("/machines/{address}");
    let title = format!("Machine {address}");
    let frame = Frame { title: &title, path: &path, at: view.at, server: view.server };
    MachinePage { frame, view }.render()
}

#[derive(Template)]
#[template(path = "machine.html", config = "src/page/askama.toml")]
struct MachinePage<'a> {
    frame: Frame<'a>,
    view: &'a MachineView<'a>,
}

impl MachinePage<'_> {
    fn sha256(&self) -> &str {
        match self.view.line.machine.requests.as_ref().map(|requests| &requests.outcome) {
            Some(Outcome::Served { sha256, .. }) => sha256,
            Some(Outcome::Refused { .. }) | None => "",
        }
    }
}

/// Describes a request or handshake, if it got a config, the answer, and the client.
fn described(visit: &Visit) -> (String, bool, String, &str) {
    match &visit.kind {
        VisitKind::Request { pool, user_agent, spec, outcome } => {
            let spec = spec.map(|spec| format!(" in spec {spec}")).unwrap_or_default();
            let (is_served, answer) = match outcome {
                Outcome::Served { config, .. } => (true, config.clone()),
                Outcome::Refused { status, reason } => (false, format!("{status}: {reason}")),
            };
            (format!("config of pool {pool}{spec}"), is_served, answer, user_agent)
        }
        VisitKind::Handshake(failed) => {
            ("TLS handshake".to_owned(), false, failed.words().to_owned(), "")
        }
    }
}

/// Chooses the command that examines this machine, after a sentence. Administrators replace FILE.ign, and HOST if it is
/// there.
fn next_step(line: &MachineLine, authority: &str) -> (&'static str, String) {
    let by_pointer =
        |sentence| (sentence, "machine-config-server inspect --pointer FILE.ign".to_owned());
    let machine = &line.machine;
    let last_failure = machine.handshakes.as_ref().filter(|handshakes| {
        machine.requests.as_ref().is_none_or(|requests| requests.last < handshakes.last)
    });
    if let Some(handshakes) = last_failure {
        return match handshakes.failed {
            Failed::Untrusted => (
                "Compare what the machine's pointer config trusts with what this server shows:",
                format!(
                    "machine-config-server certs check --pointer FILE.ign --connect {authority}"
                ),
            ),
            Failed::Tls | Failed::Timeout | Failed::Connection => {
                by_pointer("Connect as the machine does, with its pointer config:")
            }
        };
    }
    let Some(requests) = &machine.requests else {
        return by_pointer("Connect as a machine does, with its pointer config:");
    };
    if let Outcome::Refused { status: 401, .. } = requests.outcome {
        return by_pointer(
            "Fetch the config as the machine does, with the token in its pointer config:",
        );
    }
    let spec = requests.spec.unwrap_or(SpecVersion::NEWEST);
    let command = format!(
        "machine-config-server inspect https://{authority} {} --as {}",
        shell_word(&requests.pool),
        spec.as_str().rsplit_once('.').map_or("", |(minor, _)| minor),
    );
    let sentence = match (&requests.outcome, line.status.rank) {
        (Outcome::Refused { .. }, _) => {
            "Request the config as the machine does, and see why the server has none:"
        }
        (Outcome::Served { .. }, Severity::Stuck) => {
            "The machine has its config: check its console. See what the config makes of it:"
        }
        (Outcome::Served { .. }, _) => "See what the config makes of the machine:",
    };
    (sentence, command)
}

/// Returns a name that is safe in a shell, or else a placeholder: the name comes from a client, and the command is pasted.
fn shell_word(pool: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_word = !pool.is_empty() && !pool.starts_with('-') && pool.chars().all(is_plain);
    if is_word { pool } else { "POOL" }
}

#[cfg(test)]
mod tests {
    use model::ledger::{Ledger, Request};

    use super::*;

    const NOON: OffsetDateTime = time::macros::datetime!(2026-11-21 12:00 UTC);

    fn step(note: impl FnOnce(&Ledger)) -> String {
        let ledger = Ledger::default();
        note(&ledger);
        let machine = ledger.machines().remove(0);
        let status = machine.boot_status(None, NOON);
        next_step(&MachineLine { machine, status }, "HOST:22623").1
    }

    #[test]
    fn the_next_command_follows_from_what_the_machine_got_last() {
        let address = [10, 0, 0, 1].into();
        let failed = |failed| move |ledger: &Ledger| ledger.handshake_failed(address, failed, NOON);
        let check = "machine-config-server certs check --pointer FILE.ign --connect HOST:22623";
        assert_eq!(step(failed(Failed::Untrusted)), check);
        let pointer = "machine-config-server inspect --pointer FILE.ign";
        assert_eq!(step(failed(Failed::Tls)), pointer);
        let asked =
            |pool: &'static str,
             answer: Result<(&'static str, &'static str), (u16, &'static str)>| {
                step(|ledger| {
                    let spec = Some(SpecVersion::V3_4);
                    let user_agent = "Ignition/2";
                    let request = Request {
                        address,
                        pool,
                        user_agent,
                        spec,
                        without_tls: false,
                        answer,
                        would_be_refused: None,
                    };
                    ledger.asked(&request, NOON);
                })
            };
        let inspect =
            |pool| format!("machine-config-server inspect https://HOST:22623 {pool} --as 3.4");
        assert_eq!(asked("worker", Ok(("a", "00"))), inspect("worker"));
        assert_eq!(asked("worker", Err((503, "no"))), inspect("worker"));
        assert_eq!(asked("worker", Err((401, "no"))), pointer);
        for pool in ["$(reboot)", "a;b", "--help", "", "a b", "ä"] {
            assert_eq!(asked(pool, Err((503, "no"))), inspect("POOL"), "{pool}");
        }
    }
}
