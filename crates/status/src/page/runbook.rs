//! The runbook for a machine that needs help: the section about its refusal, and what the machine needs after the fix.
//!
//! The boot ledger has refusals as text. They are recognised by the texts of the errors themselves, so that another
//! wording of an error changes both.

use inspect::Cause;
use model::access::Refusal;
use model::ledger::{Failed, Outcome, Severity, TokenProblem};
use model::recovery::Recovery;
use model::refusal::NO_MEMORY;
use model::render::SelectError;
use serde::Serialize;
use strum::VariantArray as _;
use utoipa::ToSchema;

use crate::overview::MachineLine;

/// Page of the runbook in the published book. Administrators publish the book elsewhere; alerts lead to the same place.
const PAGE: &str = "https://docs.example.com/machine-config-server/runbook/machines.html";

/// Place in the runbook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Title of the section, which is also its anchor.
    pub title: &'static str,
    /// Way of the machine to its config once the cause is removed, if the ledger alone shows it.
    pub recovery: Option<Recovery>,
}

/// A machine for programs, with what a stuck one needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdvisedMachine {
    /// The machine.
    #[serde(flatten)]
    pub line: MachineLine,
    /// Next step for a stuck machine, and what it needs then: one sentence without a full stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Way of a stuck machine to its config after that step, if it is the same for each such machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
}

impl From<MachineLine> for AdvisedMachine {
    fn from(line: MachineLine) -> Self {
        let advice = Advice::of(&line);
        let fix = advice.map(|advice| advice.fix(&line));
        Self { line, fix, recovery: advice.and_then(|advice| advice.recovery) }
    }
}

const WHOLE: &str = "A machine does not come up";
const UNKNOWN: &str = "The pool is unknown";
const NO_CONFIG: &str = "The pool has no config yet";
const REFUSED: &str = "The machine is refused";
const NOT_ALLOWED: &str = "The machine is not allowed to have the config";
const UNTRUSTED: &str = "The pointer config trusts an old CA";
const NO_NODE: &str = "The machine has its config and does not join";

impl Advice {
    /// Advice for a stuck machine.
    pub fn of(line: &MachineLine) -> Option<Self> {
        if line.status.rank != Severity::Stuck {
            return None;
        }
        let machine = &line.machine;
        if machine.failure.as_ref().is_some_and(|it| it.words() == line.status.words) {
            return Some(Self::new(WHOLE, Some(Recovery::Restart)));
        }
        let failed = machine.handshakes.as_ref().filter(|handshakes| {
            machine.requests.as_ref().is_none_or(|requests| requests.last < handshakes.last)
        });
        Some(match (failed.map(|it| it.failed), &machine.requests) {
            (Some(Failed::Untrusted), _) => Self::new(UNTRUSTED, None),
            (Some(Failed::Tls), _) => Self::new(WHOLE, Some(Recovery::Retry)),
            (_, None) => Self::new(WHOLE, None),
            (_, Some(requests)) => match &requests.outcome {
                Outcome::Served { .. } => {
                    Self::new(NO_NODE, token_problem(line).map(recovery_after))
                }
                Outcome::Refused { status, reason } => Self::of_refusal(*status, reason),
            },
        })
    }

    fn new(title: &'static str, recovery: Option<Recovery>) -> Self {
        Self { title, recovery }
    }

    fn of_refusal(status: u16, reason: &str) -> Self {
        if let Some(refusal) = Refusal::VARIANTS.iter().find(|it| it.to_string() == reason) {
            return Self::new(NOT_ALLOWED, Some(recovery_of(*refusal)));
        }
        if status < 500 {
            return Self::new(REFUSED, Some(Recovery::Restart));
        }
        let is = |error: SelectError| error.to_string() == reason;
        if is(SelectError::UnknownPool) {
            // It retries if the pool is made, and needs new user data if its URL is wrong.
            return Self::new(UNKNOWN, None);
        }
        let title = if is(SelectError::NotInBootstrap) {
            UNKNOWN
        } else if is(SelectError::NoConfiguration) || is_missing_config(reason) {
            NO_CONFIG
        } else {
            WHOLE
        };
        Self::new(title, Some(Recovery::Retry))
    }

    /// Next step of an administrator for a stuck machine, and what the machine needs then: one sentence without a full
    /// stop.
    pub fn fix(self, line: &MachineLine) -> String {
        let fix = match self.title {
            UNKNOWN => {
                "make a MachineConfigPool of this name, and the machine retries and boots; or correct the pool at the end \
                 of the URL in its pointer config, and boot it again with this as its user data"
                    .to_owned()
            }
            NO_CONFIG => Cause::NoConfigYet(String::new()).remedy().to_owned(),
            REFUSED => {
                "boot the machine from a newer image, or correct the URL in its pointer config".to_owned()
            }
            NOT_ALLOWED => of_access(line).unwrap_or_default().to_owned(),
            UNTRUSTED => {
                "give the machine its pool's present pointer config as its user data, or set its clock, and boot it again; \
                 `machine-config-server certs check --pointer FILE.ign --connect HOST:22623` with its file shows which"
                    .to_owned()
            }
            NO_NODE => token_problem(line)
                .map_or(
                    "approve its CertificateSigningRequest if `kubectl get csr` shows one as Pending, otherwise read \
                     `journalctl -u kubelet` or the console of the machine",
                    TokenProblem::remedy,
                )
                .to_owned(),
            _ => self.of_others(line),
        };
        match self.recovery {
            Some(recovery) => recovery.after(&fix),
            None => fix,
        }
    }

    /// The same for what has no section.
    fn of_others(self, line: &MachineLine) -> String {
        let machine = &line.machine;
        if self.recovery == Some(Recovery::Restart) {
            return "remove the cause that the machine reports, such as a full disk or a registry whose CA it does not \
                    have; its console has the details"
                .to_owned();
        }
        let refused = machine.requests.as_ref().map(|requests| &requests.outcome);
        match (refused, machine.handshakes.as_ref().map(|it| it.failed)) {
            (Some(Outcome::Refused { reason, .. }), _) if reason == NO_MEMORY => {
                "wait for the machines that boot now; if it lasts, raise --max-connection-memory".to_owned()
            }
            (Some(Outcome::Refused { .. }), _) => {
                "correct what /readyz of the server names, `machine-config-server validate DIR` checks the result"
                    .to_owned()
            }
            (_, Some(Failed::Tls)) => {
                "boot the machine from a newer image, or allow what it offers with --tls-min-version and \
                 --tls-cipher-suites"
                    .to_owned()
            }
            _ => "fetch the config as the machine does, with `machine-config-server inspect --pointer FILE.ign`"
                .to_owned(),
        }
    }

    /// Address of the section.
    pub fn url(self) -> String {
        if self.title == WHOLE {
            return PAGE.to_owned();
        }
        let anchor = self.title.to_lowercase().replace(' ', "-");
        format!("{PAGE}#{anchor}")
    }
}

/// Reason why no machine can join, by its text.
fn token_problem(line: &MachineLine) -> Option<TokenProblem> {
    let is_named = |it: &TokenProblem| line.status.words.contains(&it.to_string());
    TokenProblem::VARIANTS.iter().copied().find(is_named)
}

/// Way of a machine that has its config to the cluster: a refused token is in that config.
fn recovery_after(problem: TokenProblem) -> Recovery {
    match problem {
        TokenProblem::Refused => Recovery::Restart,
        TokenProblem::NotAllowed => Recovery::Retry,
    }
}

/// Next step after a refusal of access, by the texts of the refusals.
fn of_access(line: &MachineLine) -> Option<&'static str> {
    let Outcome::Refused { reason, .. } = &line.machine.requests.as_ref()?.outcome else {
        return None;
    };
    Refusal::VARIANTS.iter().find(|it| it.to_string() == *reason).map(|refusal| remedy_of(*refusal))
}

fn remedy_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Missing | Refusal::Expired | Refusal::Revoked => {
            "give the machine the pool's present pointer config, which has a valid token"
        }
        Refusal::Malformed => {
            "give the machine the pool's present pointer config, unedited: its token cannot be read"
        }
        Refusal::OtherPool => {
            "give the machine the pointer config of its pool: its token is another pool's"
        }
        Refusal::PlainPort | Refusal::PoolPlainPort => {
            "give the machine a pointer config with https: and the port with TLS"
        }
        Refusal::Unsigned => {
            "compare the token with --access-jwks and the flags next to it, and get one of this issuer"
        }
        Refusal::OtherNetwork => {
            "add the machine's network to --allow-from; behind a balancer also the balancer's to --proxy-from"
        }
        Refusal::Spent => "run `machine-config-server machines rearm NAME`",
        Refusal::NotApproved => "run `machine-config-server machines approve NAME|ADDRESS`",
        Refusal::Unknown => {
            "wait a minute; if it stays, boot the machine with the pool's present pointer config: the token is of \
             another installation, or its record was lost"
        }
        Refusal::NotYet => "compare the clocks of this server and of the issuer of tokens",
        Refusal::NotStored => {
            "free space in the state directory, or restore access to the API server: /readyz has the reason"
        }
        Refusal::MachineMissing => "make the FirstBootMachine of this machine again",
        Refusal::TooMany => {
            "wait a minute; find the client at this address, or behind its balancer, that tries tokens"
        }
        Refusal::NotRead => "read on the page or in /readyz why the tokens are not known",
        Refusal::NoPool => {
            "make a MachineConfigPool of this name, or correct the pool in the URL of the pointer config"
        }
        Refusal::OldIgnition => {
            "boot the machine from a newer image, or change the rule of the pool"
        }
    }
}

/// Way of a machine to its config after a refusal of access. Its pointer config has the token and the port.
fn recovery_of(refusal: Refusal) -> Recovery {
    match refusal {
        Refusal::PlainPort
        | Refusal::PoolPlainPort
        | Refusal::Missing
        | Refusal::Malformed
        | Refusal::Expired
        | Refusal::Revoked
        | Refusal::OtherPool
        | Refusal::Unsigned => Recovery::NewUserData,
        Refusal::OtherNetwork | Refusal::Spent => Recovery::Restart,
        Refusal::Unknown
        | Refusal::NotYet
        | Refusal::NotStored
        | Refusal::MachineMissing
        | Refusal::TooMany
        | Refusal::NotRead
        | Refusal::NoPool
        | Refusal::OldIgnition
        | Refusal::NotApproved => Recovery::Retry,
    }
}

fn is_missing_config(reason: &str) -> bool {
    let name = reason.strip_prefix("MachineConfig ").and_then(|it| it.strip_suffix(" not found"));
    name.is_some_and(|name| SelectError::NoMachineConfig(name.to_owned()).to_string() == reason)
}

#[cfg(test)]
mod tests {
    use model::ledger::{Ledger, Nodes, Request};
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const BOOK: &str = include_str!("../../../../docs/src/runbook/machines.md");

    type Answer<'a> = Result<(&'a str, &'a str), (u16, &'a str)>;

    fn line(answer: Answer<'_>) -> MachineLine {
        let noon = datetime!(2026-11-21 12:00 UTC);
        let ledger = Ledger::default();
        let request = Request {
            address: [192, 0, 2, 7].into(),
            pool: "worker",
            user_agent: "Ignition/2.14.0",
            spec: None,
            without_tls: false,
            answer,
            would_be_refused: None,
        };
        ledger.asked(&request, noon);
        let machine = ledger.machines().remove(0);
        let status = machine.boot_status(None, noon);
        MachineLine { machine, status }
    }

    fn advice(answer: Answer<'_>) -> Option<Advice> {
        Advice::of(&line(answer))
    }

    #[test]
    fn each_reason_why_a_pool_has_nothing_leads_to_its_section_and_the_machine_retries() {
        for (error, title) in [
            (SelectError::NotInBootstrap, UNKNOWN),
            (SelectError::NoConfiguration, NO_CONFIG),
            (SelectError::NoMachineConfig("rendered-worker-1".to_owned()), NO_CONFIG),
            (SelectError::NoControllerConfig, WHOLE),
            (SelectError::NoKubeconfig, WHOLE),
        ] {
            let expected = Advice::new(title, Some(Recovery::Retry));
            assert_eq!(advice(Err((503, &error.to_string()))), Some(expected), "{error}");
        }
        let unknown = advice(Err((503, &SelectError::UnknownPool.to_string())));
        assert_eq!(unknown, Some(Advice::new(UNKNOWN, None)), "the fix decides");
        let busy = line(Err((503, NO_MEMORY)));
        let fix = Advice::of(&busy).expect("a stuck machine").fix(&busy);
        assert!(fix.starts_with("wait for the machines"), "{fix}");
    }

    #[test]
    fn a_machine_that_gave_up_is_not_said_to_retry() {
        for &refusal in Refusal::VARIANTS {
            let status = refusal.code().status().as_u16();
            let found = advice(Err((status, &refusal.to_string()))).expect("a stuck machine");
            assert_eq!(found.title, NOT_ALLOWED, "{refusal}");
            if !refusal.is_temporary() {
                assert_ne!(found.recovery, Some(Recovery::Retry), "{refusal}");
            }
        }
        let found = advice(Err((400, "no version can be served"))).expect("a stuck machine");
        assert_eq!(found, Advice::new(REFUSED, Some(Recovery::Restart)));
    }

    #[test]
    fn each_refusal_has_a_fix_that_ends_with_what_the_machine_needs_then() {
        let fix = |status, reason: &str| {
            let line = line(Err((status, reason)));
            Advice::of(&line).expect("a stuck machine").fix(&line)
        };
        for &refusal in Refusal::VARIANTS {
            let status = refusal.code().status().as_u16();
            let fix = fix(status, &refusal.to_string());
            let then = match recovery_of(refusal) {
                Recovery::Retry => "; the machine retries, and boots then",
                Recovery::Restart => "; then boot the machine again",
                Recovery::NewUserData => "as its user data",
            };
            assert!(fix.starts_with(remedy_of(refusal)) && fix.ends_with(then), "{refusal}: {fix}");
        }
        let unknown = fix(503, &SelectError::UnknownPool.to_string());
        assert!(unknown.starts_with("make a MachineConfigPool of this name"), "{unknown}");
        assert!(
            unknown.contains("retries and boots; or") && unknown.contains("boot it again"),
            "{unknown}"
        );
        assert!(fix(503, "something else").starts_with("correct what /readyz"));
    }

    #[test]
    fn a_machine_that_does_not_join_or_does_not_trust_is_sent_to_its_own_files() {
        let noon = datetime!(2026-11-21 12:00 UTC);
        let mut served = line(Ok(("rendered-worker-1", "ab")));
        served.status =
            served.machine.boot_status(Some(&Nodes::default()), noon + Duration::hours(1));
        let advised = AdvisedMachine::from(served.clone());
        assert_eq!((advised.fix.is_some(), advised.recovery), (true, None));
        let fix = Advice::of(&served).expect("a stuck machine").fix(&served);
        assert!(fix.contains("kubectl get csr"), "{fix}");
        for (problem, then) in [
            (TokenProblem::Refused, "; then boot the machine again"),
            (TokenProblem::NotAllowed, "; the machine retries, and boots then"),
        ] {
            let mut refused = served.clone();
            refused.status.words = format!("fetched its config; {problem}");
            let fix = Advice::of(&refused).expect("a stuck machine").fix(&refused);
            assert_eq!(fix, format!("{}{then}", problem.remedy()));
        }
        let ledger = Ledger::default();
        ledger.handshake_failed([192, 0, 2, 7].into(), Failed::Untrusted, noon);
        let machine = ledger.machines().remove(0);
        let status = machine.boot_status(None, noon);
        let untrusting = MachineLine { machine, status };
        let fix = Advice::of(&untrusting).expect("a stuck machine").fix(&untrusting);
        assert!(fix.contains("as its user data, or set its clock, and boot it again"), "{fix}");
    }

    #[test]
    fn a_machine_that_boots_needs_no_advice() {
        assert_eq!(advice(Ok(("rendered-worker-1", "ab"))), None);
    }

    #[test]
    fn the_runbook_has_each_refusal_of_access_with_what_the_machine_needs_then() {
        for refusal in Refusal::VARIANTS {
            let text = refusal.to_string();
            let text = text.split(", until").next().unwrap_or_default();
            let row = BOOK.lines().find(|line| line.starts_with(&format!("| `{text}`")));
            let row = row.unwrap_or_else(|| panic!("{text} is not in the table"));
            let then = match recovery_of(*refusal) {
                Recovery::Retry => "| it retries |",
                Recovery::Restart => "| boot it again |",
                Recovery::NewUserData => "| new user data, and boot it again |",
            };
            assert!(row.ends_with(then), "{row}");
        }
    }

    #[test]
    fn each_section_is_in_the_runbook() {
        let book = BOOK;
        assert!(book.starts_with(&format!("# {WHOLE}\n")));
        for title in [UNKNOWN, NO_CONFIG, REFUSED, NOT_ALLOWED, UNTRUSTED, NO_NODE] {
            assert!(book.contains(&format!("\n## {title}\n")), "{title}");
        }
        let url = Advice::new(NO_CONFIG, None).url();
        assert!(url.ends_with("/runbook/machines.html#the-pool-has-no-config-yet"), "{url}");
    }
}
