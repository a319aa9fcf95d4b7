//! Checks the host names in requests to the administrators' listener.
//!
//! The listener is not public, and browsers on the same machine or network can reach it. A foreign web page can make
//! its own name resolve to this listener's address (DNS rebinding), and then read these pages as if they came from its
//! own server: only the request's `Host` differs. So it must be a name that the page's owner cannot have: an address,
//! which was not resolved at all, or a known name.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri, Version};
use model::escape::quoted;
use pki::Host;
use telemetry::LogRateLimiter;

use crate::server::answer;
use crate::server::connections::connection::Peer;
use crate::server::connections::connection_limiter::Source;

/// Name of the local machine in every browser, regardless of DNS (RFC 6761 section 6.3).
const LOCALHOST: &str = "localhost";
/// Suffixes of a cluster's services. Such names cannot be registered.
const OF_SERVICES: [&str; 2] = [".svc", ".svc.cluster.local"];

#[derive(Debug, Clone)]
pub(crate) struct KnownHosts(BTreeSet<String>);

/// Reasons for refusing a request by its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownHost {
    #[error("the request has no Host header")]
    Missing,
    /// The request has several `Host` headers, or a malformed one.
    #[error("the request's Host header is malformed")]
    Malformed,
    #[error("Host {} is not a name of this listener", quoted(.0))]
    Unknown(String),
}

impl KnownHosts {
    /// Names of this machine by its hostname, and `further` ones. All addresses, `localhost` and the names of a
    /// cluster's services are always known.
    pub(crate) fn new(machine: Option<String>, further: &[Host]) -> Self {
        let machine = machine.and_then(|name| name.parse().ok());
        let mut names = BTreeSet::from([LOCALHOST.to_owned()]);
        if let Some(Host::Name(name)) = machine {
            names.extend(name.split_once('.').map(|(label, _)| label.to_owned()));
            names.insert(name);
        }
        names.extend(further.iter().filter_map(|host| match host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        }));
        Self(names)
    }

    /// Checks every host in a request.
    fn check(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), UnknownHost> {
        if let Some(authority) = uri.authority() {
            self.check_authority(authority)?;
        }
        let mut values = headers.get_all(HOST).iter();
        match (values.next(), values.next()) {
            // Balancers' probes use HTTP/1.0; browsers do not.
            (None, _) if version == Version::HTTP_10 => Ok(()),
            (None, _) => Err(UnknownHost::Missing),
            (Some(value), None) if value.is_empty() => Err(UnknownHost::Missing),
            (Some(value), None) => {
                let authority = Authority::try_from(value.as_bytes());
                self.check_authority(&authority.map_err(|_| UnknownHost::Malformed)?)
            }
            (Some(_), Some(_)) => Err(UnknownHost::Malformed),
        }
    }

    fn check_authority(&self, authority: &Authority) -> Result<(), UnknownHost> {
        let host = authority.host();
        // User information is not allowed in a request.
        let port = authority.as_str().strip_prefix(host);
        let is_port = |port: &str| matches!(port, "" | ":") || authority.port_u16().is_some();
        if host.is_empty() || !port.is_some_and(is_port) {
            return Err(UnknownHost::Malformed);
        }
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Some(address) = address {
            let address = Ipv6Addr::from_str(address).map(|_| ());
            return address.map_err(|_| UnknownHost::Malformed);
        }
        if Ipv4Addr::from_str(host).is_ok() {
            return Ok(());
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_service = || OF_SERVICES.iter().any(|end| name.ends_with(end));
        if self.0.contains(&name) || is_service() {
            return Ok(());
        }
        Err(UnknownHost::Unknown(name))
    }
}

/// Passes on requests with a known host, and logs others.
pub(super) async fn check_host(
    State((known, log)): State<(Arc<KnownHosts>, Arc<LogRateLimiter<Source>>)>,
    request: Request,
    next: Next,
) -> Response {
    let checked = known.check(request.version(), request.uri(), request.headers());
    let Err(error) = checked else { return next.run(request).await };
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    if let Some(peer) = peer.filter(|peer| log.may_log((*peer).into())) {
        tracing::warn!(
            %peer,
            %error,
            fix = "add the name with --metrics-name",
            "refused a request for an unknown host name"
        );
    }
    let text =
        format!("{error}; use the address or localhost, or add the name with --metrics-name\n");
    answer::text(StatusCode::MISDIRECTED_REQUEST, text)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn known() -> KnownHosts {
        let further = ["mcs.example.com", "192.0.2.1"].map(|host| host.parse().unwrap());
        KnownHosts::new(Some("Node-1.cluster.example".to_owned()), &further)
    }

    fn check(version: Version, target: &str, hosts: &[&[u8]]) -> Result<(), UnknownHost> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_bytes(host).unwrap());
        }
        known().check(version, &target.parse().unwrap(), &headers)
    }

    #[test]
    fn addresses_own_names_and_services_are_known_and_no_name_of_others() {
        for host in [
            "localhost",
            "LocalHost.:8797",
            "127.0.0.1:8797",
            "127.0.0.1",
            "[::1]:8797",
            "[::ffff:127.0.0.1]",
            "0.0.0.0:8797",
            "10.1.2.3:9623",
            "node-1",
            "NODE-1.cluster.example:9623",
            "mcs.example.com:80",
            "metrics.openshift-machine-config-operator.svc:9623",
            "metrics.openshift-machine-config-operator.svc.cluster.local",
        ] {
            assert_eq!(check(Version::HTTP_11, "/", &[host.as_bytes()]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8797",
            "localhost.evil.example",
            "evil-localhost",
            "127.0.0.1.evil.example",
            "mcs.example.com.evil.example",
            "a.svc.evil.example",
            "a.svc.cluster.local.evil.example",
            "svc",
            "xsvc",
            "node-2",
            "cluster.example",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
        ] {
            let checked = check(Version::HTTP_11, "/", &[host.as_bytes()]);
            assert!(matches!(checked, Err(UnknownHost::Unknown(_))), "{host}: {checked:?}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_like_an_unknown_one() {
        for host in [
            &b"a b"[..],
            b"localhost:http",
            b"evil.example@localhost",
            b"localhost@evil.example",
            b"[::1",
            b"[evil.example]",
            b"[::1%25lo]",
            b"localhost/evil",
            b"\xff\xfe",
            b":8797",
        ] {
            let checked = check(Version::HTTP_11, "/", &[host]);
            assert_eq!(checked, Err(UnknownHost::Malformed), "{}", host.escape_ascii());
        }
        assert_eq!(check(Version::HTTP_11, "/", &[]), Err(UnknownHost::Missing));
        assert_eq!(check(Version::HTTP_11, "/", &[b""]), Err(UnknownHost::Missing));
        assert_eq!(check(Version::HTTP_10, "/", &[]), Ok(()));
        let twice = check(Version::HTTP_11, "/", &[b"localhost", b"evil.example"]);
        assert_eq!(twice, Err(UnknownHost::Malformed));
        let unknown = Err(UnknownHost::Unknown("evil.example".to_owned()));
        assert_eq!(check(Version::HTTP_10, "/", &[b"evil.example"]), unknown);
        let absolute = "http://evil.example:8797/api/v1/overview";
        assert_eq!(check(Version::HTTP_11, absolute, &[b"localhost"]), unknown);
        assert_eq!(check(Version::HTTP_11, "http://localhost/", &[b"evil.example"]), unknown);
        assert_eq!(check(Version::HTTP_11, "http://[::1]:8797/", &[b"localhost"]), Ok(()));
    }
}
