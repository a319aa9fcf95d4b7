//! The policy of an issuer. Everything that it does not list is refused, each item by name.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use ipnet::IpNet;
use pki::{Host, SigningRequest, Usage};

use super::reserved_names::ReservedNames;

/// Default maximum validity, which is cert-manager's default for certificates.
pub(super) const LONGEST: Duration = Duration::from_secs(90 * 24 * 3600);

/// Certificates that an issuer may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    /// DNS names: `a.example.com`, `*.example.com` for everything below, `*`.
    pub(super) dns_names: Vec<String>,
    pub(super) addresses: Vec<IpNet>,
    /// URIs, with an optional `*` at the end.
    pub(super) uris: Vec<String>,
    /// Attributes of subjects such as `O=Example`, with an optional `*` at the end. A common name that is allowed as a
    /// DNS name or an address needs none.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestedCertificate {
    pub(super) request: SigningRequest,
    /// Usages in the object, empty if it has none.
    pub(super) usages: BTreeSet<Usage>,
    pub(super) is_ca: bool,
    pub(super) duration: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) request: SigningRequest,
    pub(super) usages: BTreeSet<Usage>,
    pub(super) is_ca: bool,
    pub(super) duration: Duration,
}

impl Policy {
    /// The certificate to sign, or all reasons against it. `reserved` names must be listed literally: a pattern does
    /// not cover them.
    pub(super) fn grant(
        &self,
        requested: RequestedCertificate,
        reserved: &ReservedNames,
    ) -> Result<Grant, Vec<String>> {
        let mut refused = Vec::new();
        self.check_names(&requested.request, reserved, &mut refused);
        for other in &requested.request.others {
            refused.push(format!("requests {other}, which this issuer never signs"));
        }
        let usages = self.check_usages(&requested, &mut refused);
        if requested.is_ca && !self.is_ca {
            refused.push(
                "requests a CA certificate, and the issuer's policy does not have isCA: true"
                    .to_owned(),
            );
        }
        if requested.request.is_ca.is_some_and(|it| it != requested.is_ca) {
            refused.push("its basic constraints contradict its isCA".to_owned());
        }
        let duration = requested.duration.unwrap_or(LONGEST.min(self.longest));
        if duration > self.longest {
            refused.push(format!(
                "requests a validity of {}, longer than the issuer's maxDuration, {}",
                hours(duration),
                hours(self.longest)
            ));
        }
        if duration.is_zero() {
            refused.push("requests a validity of no time".to_owned());
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        let RequestedCertificate { request, is_ca, .. } = requested;
        Ok(Grant { request, usages, is_ca, duration })
    }

    fn check_names(
        &self,
        request: &SigningRequest,
        reserved: &ReservedNames,
        refused: &mut Vec<String>,
    ) {
        let SigningRequest { subject, dns_names, addresses, uris, .. } = request;
        if subject.is_empty() && dns_names.is_empty() && addresses.is_empty() && uris.is_empty() {
            refused.push("requests no name".to_owned());
        }
        for name in dns_names {
            if !is_dns_name(name) {
                refused.push(format!("{name:?} is not a DNS name"));
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
            // A value that reads as a reserved name is one, even if the subjects cover it.
            let is_reserved = kind == "CN" && reserved.has_name(value);
            let is_listed = self.subjects.iter().any(|it| matches(it, &attribute));
            if !is_name && (is_reserved || !is_listed) {
                refused.push(format!("the issuer's subjects do not cover {attribute:?}"));
            }
        }
    }

    /// The usages to sign. Without an extended usage, a certificate would be valid for all: it gets the issuer's.
    fn check_usages(
        &self,
        requested: &RequestedCertificate,
        refused: &mut Vec<String>,
    ) -> BTreeSet<Usage> {
        let mut usages = requested.usages.clone();
        if usages.is_empty() {
            usages.clone_from(&requested.request.usages);
        }
        if usages.is_empty() {
            usages.extend([Usage::DIGITAL_SIGNATURE, Usage::KEY_ENCIPHERMENT]);
        }
        let of_ca = [Usage::CERT_SIGN, Usage::CRL_SIGN];
        if requested.is_ca {
            usages.extend(of_ca);
        }
        for usage in requested.request.usages.difference(&usages) {
            refused
                .push(format!("its PKCS #10 request has the usage {usage}, which its usages lack"));
        }
        let is_allowed = |usage: &&Usage| {
            self.usages.contains(usage) || requested.is_ca && of_ca.contains(usage)
        };
        for usage in usages.iter().filter(|usage| !is_allowed(usage)) {
            refused.push(format!("the issuer's usages lack {usage}"));
        }
        if !requested.is_ca && !usages.iter().any(|usage| usage.is_extended()) {
            usages.extend(self.usages.iter().filter(|usage| usage.is_extended()));
        }
        usages
    }

    fn allows_name(&self, name: &str, reserved: &ReservedNames) -> bool {
        let name = name.to_ascii_lowercase();
        let is_reserved = reserved.has_name(&name);
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

    /// Verifiers treat an IPv4-mapped address (RFC 4291 section 2.5.5.2) as IPv4.
    fn allows_address(&self, address: IpAddr, reserved: &ReservedNames) -> bool {
        let address = address.to_canonical();
        let is_reserved = reserved.has_address(address);
        self.addresses.iter().any(|network| {
            let is_one = network.prefix_len() == network.max_prefix_len();
            network.contains(&address) && (is_one || !is_reserved)
        })
    }
}

/// Returns `true` for a DNS name or a wildcard.
fn is_dns_name(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    !name.ends_with('.') && matches!(name.parse(), Ok(Host::Name(_)))
}

/// Returns true if the text matches; a `*` at the end of a pattern covers any rest.
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
mod tests;
