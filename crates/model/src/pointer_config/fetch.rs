//! A fetch of a pool's config: URL, headers and trust, as Go's `net/http` sends it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use ignition::{SpecVersion, negotiate};
use percent_encoding::percent_decode_str;
use pki::{Certificate, Host};
use serde_json::Value;

use super::fault::{Fault, HeaderFault, MAX_HEAD, MAX_HEADERS};

/// Assumed size of a request without its URL and own headers, in bytes.
const OTHER_BYTES: usize = 512;
/// Headers that Go sets itself, regardless of the config.
const OF_THE_TRANSPORT: [&str; 4] = ["host", "content-length", "transfer-encoding", "trailer"];

/// A fetch of a pool's config over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// URL as written.
    pub url: http::Uri,
    /// Host in the URL, which the serving certificate must have.
    pub host: Host,
    /// Pool in the URL.
    pub pool: String,
    /// Names and values of headers, each name once.
    pub headers: Vec<(String, String)>,
    /// Requested spec: that of the pointer config, 2.2 also for 2.0 and 2.1.
    pub spec: SpecVersion,
    /// CAs that a machine trusts for this fetch.
    pub trusted: Vec<Certificate>,
}

/// Value of `Accept` that Ignition sends for a config of this spec.
pub fn accept(spec: SpecVersion) -> String {
    let kind = "application/vnd.coreos.ignition+json";
    if spec == SpecVersion::V2_2 {
        return format!("{kind}; version={spec}, {kind}; version=1; q=0.5, */*; q=0.1");
    }
    format!("{kind};version={spec}, */*;q=0.1")
}

/// Pool in the path of a URL, as written.
pub(super) fn pool_in(url: &http::Uri) -> Option<&str> {
    let name = url.path().strip_prefix("/config/")?;
    let name = name.strip_suffix('/').unwrap_or(name);
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Returns `true` if a source is fetched by HTTP.
pub(super) fn is_of_server(source: &str) -> bool {
    let scheme = source.split(':').next().unwrap_or_default();
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// The fetch of a resource, with its remaining faults. An error is a resource for which no certificate can be judged.
pub(super) fn fetch(
    url: http::Uri,
    resource: &Value,
    spec: SpecVersion,
    trusted: &[Certificate],
) -> Result<(Fetch, Vec<Fault>), Fault> {
    if !url.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
        return Err(Fault::NoTls(url));
    }
    // The server decodes percent-encoding too.
    let pool = |name| percent_decode_str(name).decode_utf8_lossy().into_owned();
    let Some(pool) = pool_in(&url).map(pool) else { return Err(Fault::NoPool(url)) };
    let Some(host) = url.host().and_then(|host| host.parse().ok()) else {
        return Err(Fault::NoHost(url));
    };
    let mut faults = Vec::new();
    if let Some(port) = bad_port(&url) {
        faults.push(Fault::Port(url.clone(), port));
    }
    if resource["compression"] == "gzip" {
        faults.push(Fault::Compressed(url.clone()));
    }
    if resource["verification"]["hash"].is_string() {
        faults.push(Fault::Hashed(url.clone()));
    }
    let headers = headers(&url, resource, spec, &mut faults);
    Ok((Fetch { url, host, pool, headers, spec, trusted: trusted.to_vec() }, faults))
}

/// An invalid port, as written. A missing or empty one is 443.
fn bad_port(url: &http::Uri) -> Option<String> {
    let authority = url.authority()?.as_str();
    let (_, port) = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'))?;
    let is_good = port.is_empty() || port.parse::<u16>().is_ok_and(|port| port != 0);
    (!is_good).then(|| port.to_owned())
}

/// The headers that are sent: of several with one name Ignition sends the last.
fn headers(
    url: &http::Uri,
    resource: &Value,
    spec: SpecVersion,
    faults: &mut Vec<Fault>,
) -> Vec<(String, String)> {
    let mut sent: Vec<(String, String)> = Vec::new();
    for header in resource["httpHeaders"].as_array().into_iter().flatten() {
        let name = header["name"].as_str().unwrap_or_default();
        let value = header["value"].as_str();
        if let Some(fault) = header_fault(name, value, spec) {
            faults.push(Fault::Header(name.to_owned(), Box::new(url.clone()), fault));
        }
        let value = value.unwrap_or_default().trim_matches([' ', '\t']).to_owned();
        sent.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !OF_THE_TRANSPORT.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            sent.push((name.to_owned(), value));
        }
    }
    let user = url.authority().and_then(|it| Some(it.as_str().rsplit_once('@')?.0));
    let is_authorization = |(name, _): &(String, String)| AUTHORIZATION == name.as_str();
    if let Some(user) = user.filter(|_| !sent.iter().any(is_authorization)) {
        let user: Vec<u8> = percent_decode_str(user).collect();
        sent.push((AUTHORIZATION.to_string(), format!("Basic {}", BASE64.encode(user))));
    }
    let bytes = sent.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
    let target = url.path_and_query().map_or(0, |target| target.as_str().len());
    let bytes = bytes + target + OTHER_BYTES;
    if bytes > MAX_HEAD {
        faults.push(Fault::HeadersTooLarge(url.clone(), bytes));
    }
    if sent.len() > MAX_HEADERS {
        faults.push(Fault::TooManyHeaders(url.clone(), sent.len()));
    }
    sent
}

fn header_fault(name: &str, value: Option<&str>, spec: SpecVersion) -> Option<HeaderFault> {
    let Some(value) = value else { return Some(HeaderFault::NoValue) };
    let Ok(known) = HeaderName::from_bytes(name.as_bytes()) else { return Some(HeaderFault::Name) };
    // Go checks the value before it trims white space.
    if HeaderValue::from_bytes(value.as_bytes()).is_err() {
        return Some(HeaderFault::Value);
    }
    if known != ACCEPT {
        return None;
    }
    let asked = match negotiate(Some(value)) {
        Ok(asked) if asked != SpecVersion::V2_2 && asked <= spec => return None,
        Ok(asked) => format!("spec {asked}"),
        Err(_) => "no spec that is served".to_owned(),
    };
    Some(HeaderFault::Accept(asked, spec))
}
