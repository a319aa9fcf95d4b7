//! Boot status of a machine, in words.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use utoipa::ToSchema;

use super::machine::{Failed, Handshakes, Machine, Outcome, Requests};
use super::node_index::{Node, Nodes};
use super::span::span;

/// Time within which a machine joins. Firmware, an image pull of the operating system and a second boot take a quarter
/// of an hour on slow hardware. A machine that has no Node after it is stuck; if nodes are unknown, it counts as served.
const JOINS_WITHIN: Duration = Duration::minutes(20);

/// Time before which no machine has started kubelet.
const BOOTS_FOR: Duration = Duration::minutes(1);

const NO_NODE: &str = "no Node has this address yet";
const NO_NODES: &str = "this server knows no nodes";

/// Boot status of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BootStatus {
    /// Urgency of the status.
    #[serde(rename = "standing")]
    pub rank: Severity,
    /// Reason, for a person.
    #[serde(rename = "why")]
    pub words: String,
}

/// Urgency of a machine's boot status, the most urgent first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The machine needs help to come up.
    Stuck,
    /// The machine is booting.
    Booting,
    /// The machine has had time to boot from its config; without nodes, joining cannot be observed.
    Served,
    /// The machine has joined as a node.
    Joined,
    /// The client is no machine: a person or tool fetched a config.
    Visitor,
}

impl Severity {
    /// All of them, the most urgent first.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Word for people: that of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl Machine {
    /// Boot status, with the cluster's nodes if they are known.
    pub fn boot_status(&self, nodes: Option<&Nodes>, now: OffsetDateTime) -> BootStatus {
        let node = nodes.and_then(|nodes| nodes.at(self.address));
        if let Some(failure) = &self.failure
            && self.requests.as_ref().is_none_or(|requests| requests.last <= failure.last)
            && node.is_none_or(|node| node.created < failure.last)
        {
            return BootStatus { rank: Severity::Stuck, words: failure.words() };
        }
        let (rank, words) = match (&self.requests, &self.handshakes) {
            // The latest event decides.
            (requests, Some(Handshakes { failed, last, .. }))
                if failed.is_for_good() && requests.as_ref().is_none_or(|it| it.last < *last) =>
            {
                (Severity::Stuck, failed.words().to_owned())
            }
            (Some(requests), _) if !self.is_ignition() => {
                let did = match &requests.outcome {
                    Outcome::Served { .. } => "read the config".to_owned(),
                    Outcome::Refused { reason, .. } => format!("was refused: {reason}"),
                };
                (Severity::Visitor, format!("{did}, by {}", program(&requests.user_agent)))
            }
            (Some(requests), _) => match &requests.outcome {
                Outcome::Refused { status, reason } => (Severity::Stuck, refused(*status, reason)),
                Outcome::Served { .. } => match (node, nodes) {
                    (Some(node), _) => joined(node, requests),
                    (None, Some(nodes)) => {
                        let (rank, words) = waiting(requests, (Severity::Stuck, NO_NODE), now);
                        let rank = if nodes.can_join() { rank } else { Severity::Stuck };
                        let joining = nodes.joining(requests.since, now);
                        (rank, [words].into_iter().chain(joining).collect::<Vec<_>>().join("; "))
                    }
                    (None, None) => waiting(requests, (Severity::Served, NO_NODES), now),
                },
            },
            (None, Some(handshakes)) => (Severity::Visitor, handshakes.failed.words().to_owned()),
            (None, None) => (Severity::Visitor, "requested nothing".to_owned()),
        };
        BootStatus { rank, words }
    }

    /// True if it has its config for long enough to have started kubelet, and has not joined.
    pub(super) fn should_join(&self, nodes: &Nodes, now: OffsetDateTime) -> bool {
        let served =
            self.requests.as_ref().filter(|it| matches!(it.outcome, Outcome::Served { .. }));
        let ago = served.map(|requests| now - requests.last);
        self.is_ignition()
            && nodes.at(self.address).is_none()
            && ago.is_some_and(|ago| (BOOTS_FOR..=JOINS_WITHIN).contains(&ago))
    }
}

impl Failed {
    /// Value of the label in metrics: the name of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if the next handshake fails too. Aborted or silent connections may be port probes, by a balancer
    /// or a scanner.
    fn is_for_good(self) -> bool {
        matches!(self, Self::Untrusted | Self::Tls)
    }

    /// Reason of the failure, for a person.
    pub fn words(self) -> &'static str {
        match self {
            Self::Untrusted => {
                "does not trust the serving certificate: its pointer config trusts another CA or has \
                 another host name, or its clock is wrong"
            }
            Self::Tls => "offers no TLS version or cipher suite that this server allows",
            Self::Timeout => "did not finish the TLS handshake in time",
            Self::Connection => "closed the connection during the TLS handshake",
        }
    }
}

fn refused(status: u16, reason: &str) -> String {
    let then = if status < 500 { "Ignition gives up" } else { "Ignition retries" };
    format!("is refused with {status}: {reason}; {then}")
}

fn joined(node: &Node, requests: &Requests) -> (Severity, String) {
    let took = node.created - requests.since;
    let words = if took.is_negative() {
        format!("fetched its config; Node {} had its address before", node.name)
    } else {
        format!("joined as Node {}, {} after its first request", node.name, span(took))
    };
    (Severity::Joined, words)
}

/// Status of a machine that has its config and is not seen to join: `late` is its rank after the time to boot, and why.
fn waiting(requests: &Requests, late: (Severity, &str), now: OffsetDateTime) -> (Severity, String) {
    let ago = now - requests.last;
    let (rank, why) = late;
    let rank = if ago > JOINS_WITHIN { rank } else { Severity::Booting };
    (rank, format!("fetched its config {} ago, {why}", span(ago)))
}

/// Name of the program in a user agent, without version and details.
fn program(user_agent: &str) -> &str {
    let name = user_agent.split(['/', ' ']).next().unwrap_or_default();
    if name.is_empty() { "a program without a name" } else { name }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use time::macros::datetime;

    use super::super::{JoinRequest, Ledger, NodeIndex, Request, TokenProblem, Verdict};
    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    type Answered<'a> = Result<(&'a str, &'a str), (u16, &'a str)>;

    fn request<'a>(address: IpAddr, user_agent: &'a str, answer: Answered<'a>) -> Request<'a> {
        Request {
            address,
            pool: "worker",
            user_agent,
            spec: None,
            without_tls: false,
            answer,
            would_be_refused: None,
        }
    }

    fn ask(machine: &mut Machine, user_agent: &str, answer: Answered<'_>, at: OffsetDateTime) {
        machine.asked(&request(machine.address, user_agent, answer), at);
    }

    fn machine(user_agent: &str, answer: Answered<'_>) -> Machine {
        let mut machine = Machine::new("192.0.2.7".parse().unwrap(), NOON);
        ask(&mut machine, user_agent, answer, NOON);
        machine
    }

    fn nodes(address: &str, created: OffsetDateTime) -> Nodes {
        let mut nodes = Nodes::default();
        let addresses = vec![address.parse().unwrap()];
        nodes.add(Node { name: "worker-7".to_owned(), created, addresses });
        nodes
    }

    fn joins(node: &str, created: OffsetDateTime) -> JoinRequest {
        let (name, node) = ("csr-x".to_owned(), node.to_owned());
        JoinRequest { name, node, created, verdict: Verdict::Pending }
    }

    fn after(minutes: i64) -> OffsetDateTime {
        NOON + Duration::minutes(minutes)
    }

    #[test]
    fn a_machine_is_followed_until_it_is_a_node() {
        let served = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        let status = |nodes: Option<&Nodes>, now| {
            let BootStatus { rank, words } = served.boot_status(nodes, now);
            (rank, words)
        };
        let fetched = |ago| format!("fetched its config {ago} ago, no Node has this address yet");
        let others = nodes("192.0.2.8", NOON);
        assert_eq!(status(Some(&others), after(12)), (Severity::Booting, fetched("12 min")));
        assert_eq!(status(Some(&others), after(25)), (Severity::Stuck, fetched("25 min")));
        let own = nodes("192.0.2.7", after(5) + Duration::seconds(3));
        let words = "joined as Node worker-7, 5 min 3 s after its first request".to_owned();
        assert_eq!(status(Some(&own), after(25)), (Severity::Joined, words));
        let older = nodes("::ffff:192.0.2.7", after(-600));
        let words = "fetched its config; Node worker-7 had its address before";
        assert_eq!(status(Some(&older), after(1)), (Severity::Joined, words.to_owned()));
    }

    #[test]
    fn a_machine_that_waits_for_approval_says_so_until_it_is_a_node() {
        let served = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        let index = NodeIndex::default();
        let why = || index.look(|nodes| served.boot_status(nodes, after(5)).words);
        index.change_joining(|joining| joining.add(joins("worker-7", after(1))));
        assert_eq!(why(), "fetched its config 5 min ago, this server knows no nodes");
        index.set(nodes("192.0.2.8", NOON));
        assert_eq!(why(), "fetched its config 5 min ago, no Node has this address yet");
        index.change_joining(|joining| joining.add(joins("worker-9", after(1))));
        let words = "fetched its config 5 min ago, no Node has this address yet; asked to join since: \
            worker-9 waits for approval of csr-x, 4 min: kubectl certificate approve csr-x";
        assert_eq!(why(), words);
        index.set(Nodes::default());
        assert!(why().contains("worker-7 waits for"), "its Node was deleted");
        index.set(nodes("192.0.2.7", after(5)));
        assert_eq!(why(), "joined as Node worker-7, 5 min after its first request");
    }

    #[test]
    fn a_machine_whose_token_the_api_server_refuses_is_stuck_with_that_reason_until_it_is_a_node() {
        let served = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        let index = NodeIndex::default();
        index.set_token_problem(Some(TokenProblem::Refused));
        let status = || index.look(|nodes| served.boot_status(nodes, after(5)));
        assert_eq!(status().rank, Severity::Booting, "no nodes are known yet");
        index.set(Nodes::default());
        let words = "fetched its config 5 min ago, no Node has this address yet; the API server refuses the \
                     bootstrap token that machines get: Unauthorized";
        assert_eq!(status(), BootStatus { rank: Severity::Stuck, words: words.to_owned() });
        index.set(nodes("192.0.2.7", after(5)));
        assert_eq!(status().rank, Severity::Joined);
        index.set(Nodes::default());
        index.set_token_problem(None);
        assert_eq!(status().rank, Severity::Booting);
    }

    #[test]
    fn a_machine_should_join_once_it_has_had_time_to_boot_and_until_it_is_late() {
        let served = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        let should_join = |minutes| served.should_join(&Nodes::default(), after(minutes));
        assert_eq!([0, 1, 20, 21].map(should_join), [false, true, true, false]);
        assert!(!served.should_join(&nodes("192.0.2.7", after(1)), after(2)), "it has joined");
        let refused = machine("Ignition/2.14.0", Err((503, "no pool has this name")));
        let curl = machine("curl/8.0.0", Ok(("rendered-worker-1", "ab")));
        assert!(![refused, curl].iter().any(|it| it.should_join(&Nodes::default(), after(2))));
    }

    #[test]
    fn without_nodes_a_machine_is_booting_until_it_has_had_time_to() {
        let mut machine = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        for (minutes, rank, ago) in [
            (-1, Severity::Booting, "0 s"),
            (0, Severity::Booting, "0 s"),
            (20, Severity::Booting, "20 min"),
            (21, Severity::Served, "21 min"),
            (24 * 60, Severity::Served, "1 d"),
        ] {
            let words = format!("fetched its config {ago} ago, this server knows no nodes");
            assert_eq!(machine.boot_status(None, after(minutes)), BootStatus { rank, words });
        }
        // The machine boots once more.
        ask(&mut machine, "Ignition/2.14.0", Ok(("rendered-worker-1", "ab")), after(24 * 60));
        assert_eq!(machine.boot_status(None, after(24 * 60 + 1)).rank, Severity::Booting);
    }

    #[test]
    fn who_gets_nothing_is_stuck_and_reported_why() {
        for (status, reason, words) in [
            (
                503,
                "no pool has this name",
                "is refused with 503: no pool has this name; Ignition retries",
            ),
            (400, "no spec", "is refused with 400: no spec; Ignition gives up"),
        ] {
            let status = machine("Ignition/2.14.0", Err((status, reason))).boot_status(None, NOON);
            assert_eq!(status, BootStatus { rank: Severity::Stuck, words: words.to_owned() });
        }
    }

    #[test]
    fn a_handshake_that_failed_after_the_last_answer_counts() {
        let mut machine = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        machine.handshake_failed(Failed::Untrusted, after(1));
        let status = machine.boot_status(None, after(2));
        assert_eq!(status.rank, Severity::Stuck);
        assert!(status.words.starts_with("does not trust the serving certificate"));
        ask(&mut machine, "Ignition/2.14.0", Ok(("rendered-worker-1", "ab")), after(3));
        assert_eq!(machine.boot_status(None, after(3)).rank, Severity::Booting);
    }

    #[test]
    fn a_client_that_looks_whether_the_port_is_open_is_no_machine() {
        let mut prober = Machine::new("192.0.2.1".parse().unwrap(), NOON);
        for failed in [Failed::Connection, Failed::Timeout] {
            prober.handshake_failed(failed, NOON);
            assert_eq!(prober.boot_status(None, NOON).rank, Severity::Visitor);
        }
        let mut served = machine("Ignition/2.14.0", Ok(("rendered-worker-1", "ab")));
        served.handshake_failed(Failed::Connection, after(1));
        assert_eq!(served.boot_status(None, after(1)).rank, Severity::Booting);
    }

    #[test]
    fn a_person_at_a_machines_address_changes_nothing_of_the_machine() {
        let request =
            |user_agent, answer| request("192.0.2.1".parse().unwrap(), user_agent, answer);
        let served = Ok(("rendered-worker-1", "ab"));
        for (answer, rank) in
            [(served, Severity::Booting), (Err((503, "no such pool")), Severity::Stuck)]
        {
            let ledger = Ledger::default();
            ledger.asked(&request("Ignition/2.14.0", answer), NOON);
            let before = ledger.machines();
            for user_agent in ["curl/8.0.0", "machine-config-server", ""] {
                ledger.asked(&request(user_agent, served), after(1));
                assert_eq!(ledger.machines(), before, "{user_agent}");
            }
            assert_eq!(before[0].boot_status(None, after(1)).rank, rank);
            // They are among its visits all the same.
            assert_eq!(ledger.visits(before[0].address).len(), 4);
        }
    }

    #[test]
    fn people_are_visitors() {
        let words = |machine: &Machine| machine.boot_status(None, NOON).words;
        let read = machine("curl/8.0.0", Ok(("rendered-worker-1", "ab")));
        assert_eq!(words(&read), "read the config, by curl");
        let refused = machine("", Err((503, "no such pool")));
        assert_eq!(words(&refused), "was refused: no such pool, by a program without a name");
        assert_eq!(refused.boot_status(None, NOON).rank, Severity::Visitor);
    }

    #[test]
    fn labels_stay_when_a_variant_gets_another_name() {
        let ranks: Vec<_> = Severity::ALL.iter().map(|rank| rank.label()).collect();
        assert_eq!(ranks, ["stuck", "booting", "served", "joined", "visitor"]);
        let failed = [Failed::Untrusted, Failed::Tls, Failed::Timeout, Failed::Connection];
        assert_eq!(failed.map(Failed::label), ["Untrusted", "Tls", "Timeout", "Connection"]);
    }
}
