//! The overview of a server or a controller as findings.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use inspect::{SLACK, date};
use model::ledger::Severity;
use serde::Deserialize;
use status::overview::MachineLine;
use status::page::Advice;
use time::OffsetDateTime;

use super::finding::{Checked, Counts, Finding, Level, Source};
use super::readiness;

/// Overview of any version: all that an older server or a controller does not have is empty.
#[derive(Debug, Deserialize)]
pub(super) struct AnyOverview {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
    /// Host and port with TLS for machines.
    #[serde(default)]
    pub(super) authority: Option<String>,
    not_ready: Vec<String>,
    degraded: Vec<String>,
    #[serde(default)]
    pools: Vec<PoolOverview>,
    #[serde(default)]
    machines: Vec<MachineLine>,
    #[serde(default)]
    silent_servers: Vec<String>,
    #[serde(default)]
    certificates: Vec<ShownCertificate>,
    #[serde(default)]
    pointers: Vec<PointerOverview>,
    #[serde(default)]
    registries_without_ca: Vec<RegistryOverview>,
}

#[derive(Debug, Deserialize)]
struct PoolOverview {
    name: String,
    problem: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ShownCertificate {
    subject: String,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(with = "time::serde::rfc3339")]
    not_before: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    not_after: OffsetDateTime,
}

#[derive(Debug, Deserialize)]
struct PointerOverview {
    name: String,
    problem: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RegistryOverview {
    host: String,
    pools: Vec<String>,
}

impl AnyOverview {
    /// Findings of the server `from`, by this machine's clock.
    pub(super) fn checked(&self, from: &str, now: OffsetDateTime) -> Checked {
        let Self { pools, machines, pointers, .. } = self;
        let mut findings = readiness::findings(&self.not_ready, &self.degraded);
        findings.extend(self.pools.iter().filter_map(of_pool));
        findings.extend(self.clock(from, now));
        findings.extend(self.certificate(now));
        findings.extend(self.pointers.iter().filter_map(of_pointer));
        let registries = self.registries_without_ca.iter();
        findings.extend(registries.map(|it| without_ca(&it.host, &it.pools)));
        findings.extend(self.silent_servers.iter().map(|line| silent(line)));
        findings.extend(stuck(machines));
        let counts =
            Counts { pools: pools.len(), pointers: pointers.len(), machines: machines.len() };
        Checked { findings, counts }
    }

    /// A name of the serving certificate, if the server has one.
    pub(super) fn certified_host(&self) -> Option<&str> {
        self.certificates.first()?.hosts.first().map(String::as_str)
    }

    /// One of the two clocks is wrong: certificates and tokens are judged by the server's.
    fn clock(&self, from: &str, now: OffsetDateTime) -> Option<Finding> {
        let is_off = (self.at - now).abs() > SLACK;
        let what =
            || format!("its clock shows {}, and this machine's {}", date(self.at), date(now));
        let fix = "compare both with a third clock, such as `chronyc tracking` of each machine, and set the wrong one";
        let kind = (Source::Shown, Level::Error);
        is_off.then(|| Finding::new(kind, &format!("server {from}"), &what(), fix))
    }

    /// A served certificate that is not valid now.
    fn certificate(&self, now: OffsetDateTime) -> Option<Finding> {
        let leaf = self.certificates.first()?;
        let ShownCertificate { subject, not_before, not_after, .. } = leaf;
        let what = if *not_after < now {
            format!("\"{subject}\" expired at {}", date(*not_after))
        } else if *not_before > now {
            format!("\"{subject}\" is not valid before {}", date(*not_before))
        } else {
            return None;
        };
        Some(Finding::new((Source::Shown, Level::Error), SERVING, &what, RENEW))
    }
}

/// Name of the serving certificate as a thing.
pub(super) const SERVING: &str = "serving certificate";
/// Next step if the serving certificate is not valid.
const RENEW: &str = "renew it with `machine-config-server certs rotate`; if that fails, run `certs check` for the reason, and \
    compare the clocks";

fn of_pool(pool: &PoolOverview) -> Option<Finding> {
    let fix =
        "correct what the reason names; `machine-config-server inspect DIR POOL` shows the result";
    let thing = format!("pool {}", pool.name);
    let problem = pool.problem.as_ref()?;
    // Readiness has the level: of some problems a pool is served as it was.
    Some(Finding::new((Source::Readiness, Level::Warning), &thing, problem, fix))
}

fn of_pointer(pointer: &PointerOverview) -> Option<Finding> {
    let what = format!("cannot boot a machine: {}", pointer.problem.as_ref()?);
    let fix = "run `machine-config-server certs check` for the whole reason; give the machines the newest pointer config, unless \
        the serving certificate is at fault";
    Some(Finding::new((Source::Shown, Level::Error), &pointer.name, &what, fix))
}

/// A registry that machines verify by the CAs of their operating system only.
pub(super) fn without_ca(host: &str, pools: &[String]) -> Finding {
    let what = format!(
        "machines of {} pull their operating system from it, and get no CA for it: they are stuck if its certificate is \
         not from a public CA",
        pools.join(", ")
    );
    let fix = "if the registry has a private CA, put it into the ConfigMap that spec.additionalTrustedCA of \
        images.config.openshift.io names, with the key HOST or HOST..PORT";
    Finding::new((Source::Manifests, Level::Warning), &format!("registry {host}"), &what, fix)
}

fn silent(line: &str) -> Finding {
    let (server, reason) = line.rsplit_once(": ").unwrap_or(("another server", line));
    let what = format!("does not report its machines, which are missing here: {reason}");
    let thing = format!("server {server}");
    Finding::new(
        (Source::Readiness, Level::Warning),
        &thing,
        &what,
        "check whether that server runs",
    )
}

/// Stuck machines.
fn stuck(machines: &[MachineLine]) -> impl Iterator<Item = Finding> {
    let stuck = machines.iter().filter(|line| line.status.rank == Severity::Stuck);
    stuck.map(|line| {
        let fix = Advice::of(line).map(|advice| advice.fix(line)).unwrap_or_default();
        let words = &line.status.words;
        let what = match &line.machine.requests {
            Some(requests) => format!("{words} (pool {})", requests.pool),
            None => words.clone(),
        };
        let thing = format!("machine {}", line.machine.address);
        Finding::new((Source::Machines, Level::Error), &thing, &what, fix)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn checked(more: Value, now: OffsetDateTime) -> Vec<Finding> {
        let mut overview = json!({"at": "2026-11-21T12:00:00Z", "not_ready": [], "degraded": []});
        let Value::Object(more) = more else { panic!("an object") };
        overview.as_object_mut().unwrap().extend(more);
        let read: AnyOverview = serde_json::from_value(overview).unwrap();
        read.checked("192.0.2.1:8797", now).findings
    }

    fn machine(address: &str, why: &str) -> Value {
        json!({
            "address": address, "first": "2026-11-21T11:00:00Z", "last": "2026-11-21T11:00:00Z",
            "standing": "stuck", "why": why,
            "requests": {
                "pool": "worker", "user_agent": "Ignition/2.14.0", "spec": "3.4.0", "times": 3,
                "since": "2026-11-21T11:00:00Z", "last": "2026-11-21T11:00:00Z",
                "served": {"config": "rendered-worker-1", "sha256": "ab"},
            },
        })
    }

    #[test]
    fn a_machine_that_never_joined_is_named_with_its_fix() {
        let why = "fetched its config 1 h ago, no Node has this address yet";
        let found = checked(json!({"machines": [machine("192.0.2.7", why)]}), NOON);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!((found.level, &*found.things[0]), (Level::Error, "machine 192.0.2.7"));
        assert_eq!(found.what, format!("{why} (pool worker)"));
        assert!(found.fix.contains("kubectl get csr"), "{}", found.fix);
    }

    #[test]
    fn a_servers_clock_that_is_not_this_machines_is_named() {
        assert_eq!(checked(json!({}), NOON + Duration::minutes(4)), []);
        for now in [NOON + Duration::minutes(6), NOON - Duration::days(900)] {
            let found = checked(json!({}), now);
            let [found] = &found[..] else { panic!("{found:?}") };
            assert_eq!(found.things[0], "server 192.0.2.1:8797");
            assert!(
                found.what.starts_with("its clock shows 2026-11-21T12:00:00Z"),
                "{}",
                found.what
            );
        }
    }

    #[test]
    fn a_served_certificate_that_is_not_valid_is_named() {
        let certificate = |from: &str, until: &str| json!({"certificates": [{"subject": "s", "not_before": from, "not_after": until}]});
        let text = |found: Vec<Finding>| found.into_iter().map(|it| it.what).collect::<Vec<_>>();
        let past = certificate("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z");
        assert_eq!(text(checked(past, NOON)), ["\"s\" expired at 2021-01-01T00:00:00Z"]);
        let future = certificate("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z");
        assert_eq!(text(checked(future, NOON)), ["\"s\" is not valid before 2027-01-01T00:00:00Z"]);
        let present = certificate("2020-01-01T00:00:00Z", "2028-01-01T00:00:00Z");
        assert_eq!(checked(present, NOON), []);
    }

    #[test]
    fn what_else_a_server_reports_is_named_with_its_thing() {
        let found = checked(
            json!({
                "pools": [{"name": "a", "problem": "is bad"}, {"name": "b", "problem": null}],
                "pointers": [{"name": "certs/a.ign", "problem": "it trusts no CA"}],
                "registries_without_ca": [{"host": "r.example.com", "pools": ["a", "b"]}],
                "silent_servers": ["192.0.2.2:9623: no answer in time"],
            }),
            NOON,
        );
        let things: Vec<_> = found.iter().map(|it| (it.level, &*it.things[0])).collect();
        assert_eq!(
            things,
            [
                (Level::Warning, "pool a"),
                (Level::Error, "certs/a.ign"),
                (Level::Warning, "registry r.example.com"),
                (Level::Warning, "server 192.0.2.2:9623"),
            ]
        );
        assert!(found.iter().all(|it| !it.fix.is_empty()));
    }
}
