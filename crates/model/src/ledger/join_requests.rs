//! Requests of kubelets for their first certificate: with one, a machine asks to join the cluster.
//!
//! A request names the node that its machine becomes, and no address, by which the ledger knows machines. A machine that
//! has its config and no Node therefore shows all that was asked since then and has no Node: one of these is its own.

use std::collections::BTreeMap;

use pki::SigningRequest;
use time::OffsetDateTime;

use super::span::span;
use crate::escape::cut_for_json as cut;

/// Maximum number of nodes whose requests are remembered.
pub const MAX_JOIN_REQUESTS: usize = 1_000;
/// Number of requests that are described.
const DESCRIBED: usize = 3;
/// Maximum length of a reason.
const REASON: usize = 256;
/// Maximum length of a name, as Kubernetes has it for nodes.
const NAME: usize = 253;
/// Prefix of a node's user name.
const USER: &str = "system:node:";

/// A request of a kubelet for its first certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    /// Value of `metadata.name`.
    pub(super) name: String,
    /// Name of the node.
    pub(super) node: String,
    /// Time of the request, `metadata.creationTimestamp`.
    pub(super) created: OffsetDateTime,
    /// Result.
    pub(super) verdict: Verdict,
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No one has approved or denied it.
    Pending,
    /// Someone approved it.
    Approved,
    /// Someone denied it, for a reason.
    Denied(String),
    /// The signer refused it, for a reason.
    Failed(String),
}

impl JoinRequest {
    /// Reads a request in PEM. `None` if it is no node's, or was made by a node that has a certificate, or has names that
    /// no kubelet makes: names are part of a command that people paste.
    pub fn read(
        name: &str,
        requester: &str,
        pem: &[u8],
        created: OffsetDateTime,
        verdict: Verdict,
    ) -> Option<Self> {
        if requester.starts_with(USER) {
            return None;
        }
        let request = SigningRequest::from_pem(pem).ok()?;
        let mut names = request.subject.iter().filter(|(kind, _)| kind == "CN");
        let node = names.next()?.1.strip_prefix(USER)?;
        let verdict = match verdict {
            Verdict::Denied(reason) => Verdict::Denied(cut(&reason, REASON).into_owned()),
            Verdict::Failed(reason) => Verdict::Failed(cut(&reason, REASON).into_owned()),
            Verdict::Pending | Verdict::Approved => verdict,
        };
        let is_usable = names.next().is_none() && is_plain(name) && is_plain(node);
        is_usable.then(|| Self { name: name.to_owned(), node: node.to_owned(), created, verdict })
    }

    /// Describes what it waits for; `None` if no one must do anything.
    fn words(&self, now: OffsetDateTime) -> Option<String> {
        let Self { name, node, created, verdict } = self;
        match verdict {
            Verdict::Pending => Some(format!(
                "{node} waits for approval of {name}, {}: kubectl certificate approve {name}",
                span(now - *created)
            )),
            Verdict::Approved => None,
            Verdict::Denied(reason) => Some(format!("{name} of {node} was denied: {reason}")),
            Verdict::Failed(reason) => {
                Some(format!("{name} of {node} was approved and not signed: {reason}"))
            }
        }
    }
}

/// The last request of each node.
#[derive(Debug, Clone, Default)]
pub struct JoinRequests(BTreeMap<String, JoinRequest>);

impl JoinRequests {
    /// Adds or updates a request. A kubelet that is denied asks again, and its last request counts.
    pub fn add(&mut self, request: JoinRequest) {
        match self.0.get(&request.node) {
            Some(known) if known.created > request.created => return,
            None if self.0.len() >= MAX_JOIN_REQUESTS => self.discard_oldest(),
            Some(_) | None => {}
        }
        self.0.insert(request.node.clone(), request);
    }

    /// Removes the request with this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|_, request| request.name != name);
    }

    /// Describes what waits of the requests since a time, pending ones first, without nodes that `has_joined`.
    pub(super) fn words(
        &self,
        since: OffsetDateTime,
        has_joined: impl Fn(&str) -> bool,
        now: OffsetDateTime,
    ) -> Option<String> {
        let asked = self.0.values().filter(|it| it.created >= since && !has_joined(&it.node));
        let mut asked: Vec<_> = asked.filter_map(|it| Some((it, it.words(now)?))).collect();
        asked.sort_by_key(|(it, _)| (it.verdict != Verdict::Pending, it.created));
        let more = asked.len().saturating_sub(DESCRIBED);
        let words: Vec<_> = asked.into_iter().take(DESCRIBED).map(|(_, words)| words).collect();
        let more =
            if more > 0 { format!("; and {more} more: kubectl get csr") } else { String::new() };
        (!words.is_empty()).then(|| format!("asked to join since: {}{more}", words.join("; ")))
    }

    fn discard_oldest(&mut self) {
        let oldest = self.0.values().min_by_key(|request| request.created);
        if let Some(node) = oldest.map(|request| request.node.clone()) {
            self.0.remove(&node);
        }
    }
}

/// True of what needs no quotes in a shell, and is no option.
fn is_plain(name: &str) -> bool {
    // Kubelet's first request is called `node-csr-` and a hash in base64.
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    name.len() <= NAME && begins && name.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use time::Duration;
    use time::macros::datetime;

    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
    const BOOTSTRAPPER: &str = "system:bootstrap:abcdef";

    fn pem(common_name: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn request(name: &str, node: &str, minute: i64, verdict: Verdict) -> JoinRequest {
        let created = NOON + Duration::minutes(minute);
        JoinRequest { name: name.to_owned(), node: node.to_owned(), created, verdict }
    }

    fn words(requests: &JoinRequests) -> Option<String> {
        requests.words(NOON, |node| node == "joined", NOON + Duration::minutes(5))
    }

    #[test]
    fn a_request_is_read_if_a_kubelet_without_a_certificate_made_it() {
        let of_node = pem("system:node:worker-7");
        let read = |name: &str, requester: &str, pem: &str| {
            JoinRequest::read(name, requester, pem.as_bytes(), NOON, Verdict::Pending)
        };
        let expected = request("csr-x", "worker-7", 0, Verdict::Pending);
        assert_eq!(read("csr-x", BOOTSTRAPPER, &of_node), Some(expected));
        // The name that kubelet gives its first request, if it waits for the certificate.
        let own = "node-csr-JAJ_h6jzKxxMHKMEIYOjeoHyH099LWrRh8nJD0frql8";
        assert!(read(own, BOOTSTRAPPER, &of_node).is_some());
        assert_eq!(read("csr-x", "system:node:worker-7", &of_node), None, "a renewal");
        assert_eq!(read("csr-x", BOOTSTRAPPER, &pem("worker-7")), None, "no node");
        assert_eq!(read("csr-x", BOOTSTRAPPER, "worker-7"), None, "no request");
        for name in ["-x", "a b", "$(reboot)", "a;b", "", &"a".repeat(254)] {
            assert_eq!(read(name, BOOTSTRAPPER, &of_node), None, "{name}");
            let of_node = pem(&format!("system:node:{name}"));
            assert_eq!(read("csr-x", BOOTSTRAPPER, &of_node), None, "{name}");
        }
    }

    #[test]
    fn requests_that_wait_or_were_refused_since_then_are_described() {
        let mut requests = JoinRequests::default();
        assert_eq!(words(&requests), None);
        requests.add(request("csr-a", "before", -1, Verdict::Pending));
        requests.add(request("csr-b", "joined", 1, Verdict::Pending));
        requests.add(request("csr-c", "approved", 1, Verdict::Approved));
        assert_eq!(words(&requests), None);
        requests.add(request("csr-d", "denied", 0, Verdict::Denied("not ours".to_owned())));
        requests.add(request("csr-e", "failed", 0, Verdict::Failed("no usages".to_owned())));
        requests.add(request("csr-x", "worker-7", 1, Verdict::Pending));
        let expected = "asked to join since: \
            worker-7 waits for approval of csr-x, 4 min: kubectl certificate approve csr-x; \
            csr-d of denied was denied: not ours; \
            csr-e of failed was approved and not signed: no usages";
        assert_eq!(words(&requests).as_deref(), Some(expected));
        requests.add(request("csr-f", "failed-too", 2, Verdict::Failed("no usages".to_owned())));
        let expected = format!("{expected}; and 1 more: kubectl get csr");
        assert_eq!(words(&requests), Some(expected));
    }

    #[test]
    fn the_last_request_of_a_node_counts() {
        let mut requests = JoinRequests::default();
        requests.add(request("csr-b", "worker-7", 2, Verdict::Approved));
        requests.add(request("csr-a", "worker-7", 1, Verdict::Pending));
        assert_eq!(words(&requests), None);
        requests.add(request("csr-c", "worker-7", 3, Verdict::Pending));
        assert!(words(&requests).is_some_and(|words| words.contains("csr-c, 2 min")));
        requests.remove("csr-c");
        assert_eq!(words(&requests), None);
    }

    #[test]
    fn the_oldest_of_too_many_is_discarded() {
        let mut requests = JoinRequests::default();
        for minute in 0..=1_000 {
            let (name, node) = (format!("csr-{minute}"), format!("node-{minute}"));
            requests.add(request(&name, &node, minute, Verdict::Pending));
        }
        assert_eq!(requests.0.len(), MAX_JOIN_REQUESTS);
        assert!(!requests.0.contains_key("node-0") && requests.0.contains_key("node-1"));
    }
}
