//! What an issuer may sign. What its policy does not list is refused, each thing by name.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::pki::{Host, SigningRequest, Usage};

/// The longest a certificate is valid where an issuer does not say: what cert-manager asks for by itself.
pub(super) const LONGEST: Duration = Duration::from_secs(90 * 24 * 3600);

/// What may be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    /// DNS names: `a.example.com`, `*.example.com` for everything below, `*`.
    pub(super) dns_names: Vec<String>,
    /// Networks of addresses.
    pub(super) addresses: Vec<IpNet>,
    /// URIs, a `*` at the end for any rest.
    pub(super) uris: Vec<String>,
    /// Attributes of subjects, `O=Example`, likewise. A common name that would do as a DNS name or an address does
    /// without.
    pub(super) subjects: Vec<String>,
    pub(super) usages: BTreeSet<Usage>,
    pub(super) longest: Duration,
    pub(super) is_ca: bool,
}

impl Default for Policy {
    fn default() -> Self {
        let usages = [
            Usage::DIGITAL_SIGNATURE,
            Usage::KEY_ENCIPHERMENT,
            Usage::SERVER_AUTH,
            Usage::CLIENT_AUTH,
        ];
        Self {
            dns_names: Vec::new(),
            addresses: Vec::new(),
            uris: Vec::new(),
            subjects: Vec::new(),
            usages: usages.into(),
            longest: LONGEST,
            is_ca: false,
        }
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) request: SigningRequest,
    /// What the object says beside the request, none where it says nothing.
    pub(super) usages: BTreeSet<Usage>,
    pub(super) is_ca: bool,
    pub(super) duration: Option<Duration>,
}

/// What is to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) request: SigningRequest,
    pub(super) usages: BTreeSet<Usage>,
    pub(super) is_ca: bool,
    pub(super) duration: Duration,
}

impl Policy {
    /// What is to be signed, or all that keeps it from being. `reserved` are names that an issuer has to list as
    /// they are: a pattern does not cover them.
    pub(super) fn grant(
        &self,
        asked: Asked,
        reserved: &BTreeSet<Host>,
    ) -> Result<Grant, Vec<String>> {
        let mut refused = Vec::new();
        self.judge_names(&asked.request, reserved, &mut refused);
        for other in &asked.request.others {
            refused.push(format!("it asks for {other}, which is never signed here"));
        }
        let usages = self.judge_usages(&asked, &mut refused);
        if asked.is_ca && !self.is_ca {
            refused
                .push("it is to be a CA's, and the issuer's policy has no isCA: true".to_owned());
        }
        if asked.request.is_ca.is_some_and(|it| it != asked.is_ca) {
            refused.push("its basic constraints say otherwise than isCA beside it".to_owned());
        }
        let duration = asked.duration.unwrap_or(LONGEST.min(self.longest));
        if duration > self.longest {
            refused.push(format!(
                "it is to be valid for {}, longer than the issuer's maxDuration, {}",
                hours(duration),
                hours(self.longest)
            ));
        }
        if duration.is_zero() {
            refused.push("it is to be valid for no time at all".to_owned());
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        let Asked { request, is_ca, .. } = asked;
        Ok(Grant { request, usages, is_ca, duration })
    }

    fn judge_names(
        &self,
        request: &SigningRequest,
        reserved: &BTreeSet<Host>,
        refused: &mut Vec<String>,
    ) {
        let SigningRequest { subject, dns_names, addresses, uris, .. } = request;
        if subject.is_empty() && dns_names.is_empty() && addresses.is_empty() && uris.is_empty() {
            refused.push("it asks for no name".to_owned());
        }
        for name in dns_names {
            if !is_dns_name(name) {
                refused.push(format!("{name:?} is no DNS name"));
            } else if !self.allows_name(name, reserved) {
                refused.push(format!("the issuer's dnsNames do not cover {name}"));
            }
        }
        for address in addresses.iter().filter(|address| !self.allows_address(**address, reserved))
        {
            refused.push(format!("the issuer's ipAddresses do not cover {address}"));
        }
        for uri in uris.iter().filter(|uri| !self.uris.iter().any(|it| matches(it, uri))) {
            refused.push(format!("the issuer's uris do not cover {uri:?}"));
        }
        for (kind, value) in subject {
            let attribute = format!("{kind}={value}");
            let is_name = kind == "CN"
                && value.parse::<IpAddr>().map_or_else(
                    |_| is_dns_name(value) && self.allows_name(value, reserved),
                    |address| self.allows_address(address, reserved),
                );
            // What reads as a name of the server is one, whatever the subjects say.
            let is_reserved = kind == "CN" && is_reserved(&value.to_ascii_lowercase(), reserved);
            let is_listed = self.subjects.iter().any(|it| matches(it, &attribute));
            if !is_name && (is_reserved || !is_listed) {
                refused.push(format!("the issuer's subjects do not cover {attribute:?}"));
            }
        }
    }

    /// The usages to be signed. Who says nothing of extended usage would get a certificate for everything: it gets
    /// what the issuer has.
    fn judge_usages(&self, asked: &Asked, refused: &mut Vec<String>) -> BTreeSet<Usage> {
        let mut usages = asked.usages.clone();
        if usages.is_empty() {
            usages.clone_from(&asked.request.usages);
        }
        if usages.is_empty() {
            usages.extend([Usage::DIGITAL_SIGNATURE, Usage::KEY_ENCIPHERMENT]);
        }
        let of_ca = [Usage::CERT_SIGN, Usage::CRL_SIGN];
        if asked.is_ca {
            usages.extend(of_ca);
        }
        for usage in asked.request.usages.difference(&usages) {
            refused
                .push(format!("the request in it asks for {usage}, which usages beside it lack"));
        }
        let is_allowed =
            |usage: &&Usage| self.usages.contains(usage) || asked.is_ca && of_ca.contains(usage);
        for usage in usages.iter().filter(|usage| !is_allowed(usage)) {
            refused.push(format!("the issuer's usages lack {usage}"));
        }
        if !asked.is_ca && !usages.iter().any(|usage| usage.is_extended()) {
            usages.extend(self.usages.iter().filter(|usage| usage.is_extended()));
        }
        usages
    }

    fn allows_name(&self, name: &str, reserved: &BTreeSet<Host>) -> bool {
        let name = name.to_ascii_lowercase();
        let is_reserved = is_reserved(&name, reserved);
        self.dns_names.iter().any(|allowed| {
            let allowed = allowed.to_ascii_lowercase();
            match allowed.strip_prefix('*') {
                None => allowed == name,
                Some(_) if is_reserved => false,
                Some("") => true,
                Some(rest) => rest.starts_with('.') && name.ends_with(rest),
            }
        })
    }

    fn allows_address(&self, address: IpAddr, reserved: &BTreeSet<Host>) -> bool {
        let is_reserved = reserved.contains(&Host::Address(address));
        self.addresses.iter().any(|network| {
            let is_one = network.prefix_len() == network.max_prefix_len();
            network.contains(&address) && (is_one || !is_reserved)
        })
    }
}

/// Whether a name in lower case is one of these, or a wildcard that stands for one.
fn is_reserved(name: &str, reserved: &BTreeSet<Host>) -> bool {
    reserved.iter().any(|host| match (host, name.strip_prefix("*.")) {
        (Host::Name(host), Some(rest)) => host.split_once('.').is_some_and(|(_, it)| it == rest),
        (Host::Name(host), None) => host == name,
        (Host::Address(address), _) => name.parse() == Ok(*address),
    })
}

/// Whether it is one, or a wildcard.
fn is_dns_name(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    !name.ends_with('.') && matches!(name.parse(), Ok(Host::Name(_)))
}

/// A `*` at the end of a pattern stands for any rest.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => text.starts_with(begin),
        None => pattern == text,
    }
}

fn hours(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds % 3600 {
        0 => format!("{}h", seconds / 3600),
        rest => format!("{}h{}m{}s", seconds / 3600, rest / 60, rest % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy {
            dns_names: vec!["a.example.com".to_owned(), "*.apps.example.com".to_owned()],
            addresses: vec!["192.0.2.0/24".parse().unwrap(), "198.51.100.7/32".parse().unwrap()],
            uris: vec!["spiffe://example.com/*".to_owned()],
            subjects: vec!["O=Example".to_owned(), "OU=*".to_owned(), "CN=user *".to_owned()],
            ..Policy::default()
        }
    }

    fn asked(request: SigningRequest) -> Asked {
        Asked { request, usages: BTreeSet::new(), is_ca: false, duration: None }
    }

    fn names(dns_names: &[&str]) -> SigningRequest {
        let dns_names = dns_names.iter().map(|&name| name.to_owned()).collect();
        SigningRequest { dns_names, ..SigningRequest::default() }
    }

    fn usages(words: &[&str]) -> BTreeSet<Usage> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    fn refusals(policy: &Policy, asked: Asked) -> Vec<String> {
        policy.grant(asked, &BTreeSet::new()).err().unwrap_or_default()
    }

    #[test]
    fn names_are_signed_that_the_policy_lists() {
        for (name, is_allowed) in [
            ("a.example.com", true),
            ("A.Example.com", true),
            ("b.example.com", false),
            ("a.apps.example.com", true),
            ("a.b.apps.example.com", true),
            ("*.apps.example.com", true),
            ("apps.example.com", false),
            ("anapps.example.com", false),
            ("*.example.com", false),
        ] {
            let refused = refusals(&policy(), asked(names(&[name])));
            let expected = format!("the issuer's dnsNames do not cover {name}");
            assert_eq!(refused, if is_allowed { vec![] } else { vec![expected] }, "{name}");
        }
        for name in ["", "a b", "*", "a.apps.example.com.", "*.*.apps.example.com", "192.0.2.1"] {
            let refused = refusals(&policy(), asked(names(&[name])));
            assert_eq!(refused, [format!("{name:?} is no DNS name")], "{name:?}");
        }
        assert_eq!(refusals(&policy(), asked(names(&[]))), ["it asks for no name"]);
        let all = Policy { dns_names: vec!["*".to_owned()], ..Policy::default() };
        assert_eq!(refusals(&all, asked(names(&["*.example.org"]))), [""; 0]);
    }

    #[test]
    fn by_default_no_name_is_signed_and_no_ca() {
        let refused = refusals(&Policy::default(), Asked { is_ca: true, ..asked(names(&["a"])) });
        assert_eq!(
            refused,
            [
                "the issuer's dnsNames do not cover a",
                "it is to be a CA's, and the issuer's policy has no isCA: true",
            ]
        );
    }

    #[test]
    fn addresses_uris_and_subjects_are_signed_that_the_policy_lists() {
        let text = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
        let good = SigningRequest {
            addresses: vec!["192.0.2.1".parse().unwrap()],
            uris: vec!["spiffe://example.com/ns/a".to_owned()],
            subject: vec![text("CN", "a.example.com"), text("O", "Example"), text("OU", "any")],
            ..SigningRequest::default()
        };
        assert_eq!(refusals(&policy(), asked(good)), [""; 0]);
        let bad = SigningRequest {
            addresses: vec!["203.0.113.1".parse().unwrap()],
            uris: vec!["spiffe://example.org/ns/a".to_owned()],
            subject: vec![text("CN", "b.example.com"), text("O", "Example Two"), text("C", "NO")],
            others: vec!["the extension 1.2.3".to_owned()],
            ..SigningRequest::default()
        };
        assert_eq!(
            refusals(&policy(), asked(bad)),
            [
                "the issuer's ipAddresses do not cover 203.0.113.1",
                "the issuer's uris do not cover \"spiffe://example.org/ns/a\"",
                "the issuer's subjects do not cover \"CN=b.example.com\"",
                "the issuer's subjects do not cover \"O=Example Two\"",
                "the issuer's subjects do not cover \"C=NO\"",
                "it asks for the extension 1.2.3, which is never signed here",
            ]
        );
        for (name, is_allowed) in [("user a", true), ("192.0.2.9", true), ("203.0.113.9", false)] {
            let request =
                SigningRequest { subject: vec![text("CN", name)], ..SigningRequest::default() };
            assert_eq!(refusals(&policy(), asked(request)).is_empty(), is_allowed, "{name}");
        }
    }

    #[test]
    fn names_of_the_server_have_to_be_listed_as_they_are() {
        let reserved: BTreeSet<Host> =
            ["api.apps.example.com", "a.example.com", "192.0.2.5", "198.51.100.7"]
                .map(|host| host.parse().unwrap())
                .into();
        for (name, is_allowed) in [
            ("b.apps.example.com", true),
            ("api.apps.example.com", false),
            ("API.apps.example.com", false),
            ("*.apps.example.com", false),
            ("*.b.apps.example.com", true),
            ("a.example.com", true),
        ] {
            let granted = policy().grant(asked(names(&[name])), &reserved);
            assert_eq!(granted.is_ok(), is_allowed, "{name}");
        }
        for (address, is_allowed) in
            [("192.0.2.6", true), ("192.0.2.5", false), ("198.51.100.7", true)]
        {
            let addresses = vec![address.parse().unwrap()];
            let request = SigningRequest { addresses, ..SigningRequest::default() };
            assert_eq!(policy().grant(asked(request), &reserved).is_ok(), is_allowed, "{address}");
        }
        // Some clients read a common name like a DNS name.
        let any = Policy { subjects: vec!["CN=*".to_owned()], ..policy() };
        for (name, is_allowed) in [
            ("other", true),
            ("a.example.com", true),
            ("api.apps.example.com", false),
            ("*.apps.example.com", false),
            ("192.0.2.5", false),
        ] {
            let subject = vec![("CN".to_owned(), name.to_owned())];
            let request = SigningRequest { subject, ..SigningRequest::default() };
            assert_eq!(any.grant(asked(request), &reserved).is_ok(), is_allowed, "{name}");
        }
    }

    #[test]
    fn usages_are_signed_that_the_policy_lists_and_none_means_the_policy_s() {
        let granted = |asked_usages: &[&str], in_request: &[&str]| {
            let request =
                SigningRequest { usages: usages(in_request), ..names(&["a.example.com"]) };
            let asked = Asked { usages: usages(asked_usages), ..asked(request) };
            policy().grant(asked, &BTreeSet::new()).map(|grant| grant.usages)
        };
        let both = ["server auth", "client auth"];
        let default = [&["digital signature", "key encipherment"][..], &both].concat();
        assert_eq!(granted(&[], &[]), Ok(usages(&default)));
        let signature = [&["digital signature"][..], &both].concat();
        assert_eq!(granted(&[], &["digital signature"]), Ok(usages(&signature)));
        let server = ["digital signature", "server auth"];
        assert_eq!(granted(&server, &server), Ok(usages(&server)));
        assert_eq!(
            granted(&server, &["client auth"]),
            Err(vec![
                "the request in it asks for client auth, which usages beside it lack".to_owned()
            ])
        );
        for word in ["code signing", "cert sign", "any"] {
            let refused = vec![format!("the issuer's usages lack {word}")];
            assert_eq!(granted(&["digital signature", word], &[]), Err(refused));
        }
    }

    #[test]
    fn a_ca_is_signed_where_the_policy_says_so() {
        let policy = Policy { is_ca: true, ..policy() };
        let ask = |is_ca, in_request| Asked {
            is_ca,
            ..asked(SigningRequest { is_ca: in_request, ..names(&["a.example.com"]) })
        };
        let grant = policy.grant(ask(true, Some(true)), &BTreeSet::new()).unwrap();
        assert!(grant.is_ca);
        let all = ["digital signature", "key encipherment", "cert sign", "crl sign"];
        assert_eq!(grant.usages, usages(&all));
        assert!(!policy.grant(ask(false, None), &BTreeSet::new()).unwrap().is_ca);
        for (is_ca, in_request) in [(true, false), (false, true)] {
            assert_eq!(
                refusals(&policy, ask(is_ca, Some(in_request))),
                ["its basic constraints say otherwise than isCA beside it"]
            );
        }
    }

    #[test]
    fn a_certificate_is_valid_no_longer_than_the_policy_says() {
        let grant = |longest: u64, asked_for: Option<u64>| {
            let policy = Policy { longest: Duration::from_secs(longest), ..policy() };
            let duration = asked_for.map(Duration::from_secs);
            let asked = Asked { duration, ..asked(names(&["a.example.com"])) };
            policy.grant(asked, &BTreeSet::new()).map(|grant| grant.duration.as_secs())
        };
        assert_eq!(grant(7200, Some(7200)), Ok(7200));
        assert_eq!(
            grant(7200, Some(9015)),
            Err(vec![
                "it is to be valid for 2h30m15s, longer than the issuer's maxDuration, 2h"
                    .to_owned()
            ])
        );
        assert_eq!(grant(7200, None), Ok(7200), "not the usual time, which is longer");
        assert_eq!(grant(u64::MAX, None), Ok(LONGEST.as_secs()));
        assert!(grant(7200, Some(0)).is_err());
    }
}
