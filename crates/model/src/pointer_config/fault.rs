//! Faults that keep a machine from booting from a pointer config, and remarks about it.

use ignition::{self, SpecVersion};
use pki::USER_DATA_LIMITS;

use super::ca::{CaFault, ContentsFault};

/// Maximum user data of EC2, in bytes, before it is encoded for the request.
pub const EC2_LIMIT: usize = USER_DATA_LIMITS[0].1;
/// Default maximum size of a request's head, in bytes.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// Maximum number of headers in a request, less those that Ignition adds.
pub(super) const MAX_HEADERS: usize = 96;

/// Reasons why no machine can or should boot from a file. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file is empty.
    #[error("empty")]
    Empty,
    /// The file is a shell script, cloud-init's data or PowerShell.
    #[error("not an Ignition config, but a script or user data of another tool")]
    Script,
    /// The file is Butane, as people write it (ignition#2235).
    #[error(
        "Butane, which Ignition reads from 2.27 on, and no earlier one: convert it with `butane --strict`, so that \
            each machine boots"
    )]
    Butane,
    /// The file is compressed as a whole.
    #[error("compressed with gzip, which Ignition does not unpack: decompress it first")]
    Gzip,
    /// The file is base64, as copied from a Secret.
    #[error("encoded in base64, as in a Secret: decode it first (base64 -d)")]
    Base64,
    /// The file is no JSON, has an unknown spec, or violates its rules.
    #[error("{0}")]
    Invalid(ignition::Error),
    /// The config has no pointer, neither in this list nor elsewhere.
    #[error(
        "not a pointer config: neither ignition.config.{0} nor ignition.config.replace has \
            https://HOST:22623/config/POOL"
    )]
    NoPointer(&'static str),
    /// The config is fetched by plain HTTP.
    #[error(
        "{0} has no TLS: others on the network can read the machine's secrets and change its config"
    )]
    NoTls(http::Uri),
    /// The path lacks the pool.
    #[error("{0} names no pool: it must end in /config/POOL")]
    NoPool(http::Uri),
    /// The host cannot be in a certificate.
    #[error("{0} has a host that no certificate can name")]
    NoHost(http::Uri),
    /// The config has no CAs to trust.
    #[error(
        "has no certificateAuthorities in ignition.security.tls: a machine would trust the CAs of \
            its image, which did not sign this server's certificate"
    )]
    NoCas,
    /// The URL cannot be requested.
    #[error("{0} is not the URL of a config")]
    BadUrl(String),
    /// The port is invalid, as it is written.
    #[error("{0} has port {1}, which no server can use")]
    Port(http::Uri, String),
    /// The path is not that of a pool's config.
    #[error("{0} is not served: pools' configs are at /config/POOL")]
    NotServed(http::Uri),
    /// The fetched config is declared as compressed.
    #[error("{0} has the compression gzip, and the server sends configs uncompressed")]
    Compressed(http::Uri),
    /// The fetched config is compared with a hash.
    #[error(
        "{0} has a verification hash, which fails when the pool's config changes, and for each \
            Ignition that reads another spec: remove the verification"
    )]
    Hashed(http::Uri),
    /// Ignition does not send the header with this name, or the server does not accept it.
    #[error("header {0:?} of {1} {2}")]
    Header(String, Box<http::Uri>, HeaderFault),
    /// The headers, with those that Ignition adds, have more bytes than a server reads.
    #[error("the headers of {0} take {1} bytes, and the server reads {MAX_HEAD} at most")]
    HeadersTooLarge(http::Uri, usize),
    /// The headers, without those that Ignition adds, are more than a server reads.
    #[error("{0} has {1} headers, and the server reads {MAX_HEADERS} at most")]
    TooManyHeaders(http::Uri, usize),
    /// A source is empty. Ignition reads it as an empty config, and stops.
    #[error("{0} has an empty source, so that a machine boots without the config of its pool")]
    NoSource(String),
    /// The config in the data URL at this place is faulty.
    #[error("the config in {0} cannot be read: {1}")]
    Nested(String, Box<Fault>),
    /// A data URL or its contents are faulty.
    #[error("it {0}")]
    Contents(ContentsFault),
    /// A nested config has a spec that an Ignition for the outer one need not read.
    #[error("its Ignition spec is {found}, and that of the config around it {expected}")]
    OtherSpec {
        /// Spec of the nested config.
        found: SpecVersion,
        /// Spec of the outer config.
        expected: SpecVersion,
    },
    /// The contents of the file with this path do not match their description.
    #[error("the file {0}, in a data URL, {1}: a machine fails when it writes it")]
    File(String, ContentsFault),
    /// Configs are nested too deeply.
    #[error("configs are nested too deeply")]
    TooDeep,
    /// The timeout in seconds expires before the first request.
    #[error("ignition.timeouts.httpTotal is {0}: a machine gives up before its first request")]
    Timeout(i64),
    /// The entry of the CAs with this index is unreadable, which ends Ignition.
    #[error("ignition.security.tls.certificateAuthorities[{0}] {1}")]
    Ca(usize, CaFault),
}

/// Remarks that keep no machine from booting at present. Each message is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The size in bytes is near the limit of a platform, or above it.
    #[error("has {bytes} bytes{limit}", bytes = .0, limit = near_ec2_limit(*.0))]
    Size(usize),
    /// The entry with this index is fetched.
    #[error("certificateAuthorities[{0}] is fetched, and is not checked")]
    RemoteCa(usize),
    /// An entry has more certificates than Ignition reads.
    #[error(
        "certificateAuthorities[{index}] has {present} certificates, of which Ignition reads only the first in spec 2"
    )]
    OnlyFirst {
        /// Index of the entry.
        index: usize,
        /// Number of certificates.
        present: usize,
    },
    /// Another source is fetched.
    #[error("{0} is fetched too, and is not checked")]
    OtherSource(String),
    /// The URL has no port.
    #[error(
        "{0} has no port, which is 443 then: servers listen on 22623 unless --secure-port or a balancer says 443"
    )]
    DefaultPort(http::Uri),
    /// A proxy is used.
    #[error("ignition.proxy is not checked")]
    Proxy,
}

fn near_ec2_limit(bytes: usize) -> String {
    if bytes > EC2_LIMIT {
        format!(", and EC2 accepts {EC2_LIMIT} bytes of user data")
    } else {
        format!(" of the {EC2_LIMIT} that EC2 accepts as user data")
    }
}

/// Faults of a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Ignition refuses a header without a value.
    #[error("has no value")]
    NoValue,
    /// The name violates RFC 9110, section 5.1.
    #[error("has a name that HTTP forbids")]
    Name,
    /// The value violates RFC 9110, section 5.5.
    #[error("has a value that HTTP forbids")]
    Value,
    /// The header replaces Ignition's own `Accept`, and requests something else than the pointer config's spec.
    #[error("requests {0}, which Ignition does not read from a config of spec {1}")]
    Accept(String, SpecVersion),
}
