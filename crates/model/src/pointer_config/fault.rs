//! What keeps a machine from booting from a file, and what is worth knowing of it.

use std::fmt;

use ignition::{self, SpecVersion};
use pki::USER_DATA_LIMITS;

use super::ca::{CaFault, ContentsFault};

/// What EC2 takes as user data, in bytes, before it is encoded for the request.
pub const EC2_LIMIT: usize = USER_DATA_LIMITS[0].1;
/// What a server reads of a request before it refuses it, where its flags do not say otherwise.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// Headers that a server reads, less those that Ignition sends by itself.
pub(super) const MAX_HEADERS: usize = 96;

/// Why no machine can boot from a file, or should not. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// A shell script, cloud-init's data, PowerShell.
    #[error("it is no Ignition config, but a script or another tool's user data")]
    Script,
    /// Compressed as a whole.
    #[error("it is compressed with gzip, which Ignition does not unpack: give it as it is")]
    Gzip,
    /// Taken from a Secret as it stands there.
    #[error("it is encoded in base64, as in a Secret: decode it first (base64 -d)")]
    Base64,
    /// No JSON, no spec that is known, or against its rules.
    #[error("{0}")]
    Invalid(ignition::Error),
    /// A config that leads nowhere.
    #[error(
        "it is no pointer config: neither ignition.config.{list} nor ignition.config.replace has \
         https://HOST:22623/config/POOL"
    )]
    NoPointer {
        /// Where its spec has it.
        list: &'static str,
    },
    /// A config that is fetched in plain HTTP.
    #[error("{0} has no TLS: whoever is on the way reads the machine's secrets, and can change it")]
    NoTls(http::Uri),
    /// The path ends before the pool.
    #[error("{0} names no pool: it has to end in /config/POOL")]
    NoPool(http::Uri),
    /// A host that no certificate can name.
    #[error("{0} has a host that no certificate can name")]
    NoHost(http::Uri),
    /// Nothing to trust the server by.
    #[error(
        "it names no certificate authorities in ignition.security.tls: a machine would trust those \
         of its image, which do not know this server's"
    )]
    NoCas,
    /// A URL that cannot be asked for.
    #[error("{0} is no URL that a server is asked for")]
    BadUrl(String),
    /// A port that nothing can listen on.
    #[error("{url} has port {port}, which nothing can listen on")]
    Port {
        /// The URL.
        url: http::Uri,
        /// As it is written.
        port: String,
    },
    /// Another path of the server that the pools' configs come from.
    #[error("{0} is not served: pools' configs are at /config/POOL")]
    NotServed(http::Uri),
    /// A compressed pool's config.
    #[error("{0} is to be unpacked with gzip, and the server does not compress what it sends")]
    Compressed(http::Uri),
    /// What is fetched is compared with a hash.
    #[error(
        "{0} is compared with a hash, which fails once the pool's config changes, and for each \
         Ignition that reads another spec: leave out verification"
    )]
    Hashed(http::Uri),
    /// A header that Ignition does not send, or the server does not take.
    #[error("header {name:?} of {url} {fault}")]
    Header {
        /// The URL.
        url: Box<http::Uri>,
        /// The header's name.
        name: String,
        /// What is wrong with it.
        fault: HeaderFault,
    },
    /// More headers than a server reads.
    #[error("the headers of {url} take {bytes} bytes, and the server reads {MAX_HEAD} at most")]
    HeadersTooLarge {
        /// The URL.
        url: http::Uri,
        /// With what Ignition sends by itself.
        bytes: usize,
    },
    /// More headers than a server reads.
    #[error("{url} has {count} headers, and the server reads {MAX_HEADERS} at most")]
    TooManyHeaders {
        /// The URL.
        url: http::Uri,
        /// Without those that Ignition sends by itself.
        count: usize,
    },
    /// A source that is empty, which Ignition reads as an empty config and ends with it.
    #[error("{0} has an empty source, so that a machine boots without the config of its pool")]
    NoSource(String),
    /// A config in a data URL.
    #[error("the config in {place} cannot be read: {fault}")]
    Nested {
        /// Where it is.
        place: String,
        /// What is wrong with it.
        fault: Box<Fault>,
    },
    /// A data URL, or what is in it.
    #[error("it {0}")]
    Contents(ContentsFault),
    /// A config in a data URL that an Ignition which reads the one around it need not read.
    #[error("its Ignition spec is {found}, and that of the config around it {expected}")]
    OtherSpec {
        /// Its spec.
        found: SpecVersion,
        /// That of the config around it.
        expected: SpecVersion,
    },
    /// A file whose contents are not what is said of them.
    #[error("the file {path}, in a data URL, {fault}: a machine ends when it writes it")]
    File {
        /// Where it is to be.
        path: String,
        /// What is wrong with it.
        fault: ContentsFault,
    },
    /// Configs in configs without an end.
    #[error("configs are nested too deeply")]
    TooDeep,
    /// A time after which a machine gives up before it has asked.
    #[error("ignition.timeouts.{field} is {seconds}: a machine gives up before it has asked")]
    Timeout {
        /// The field.
        field: &'static str,
        /// As it is written.
        seconds: i64,
    },
    /// Ignition gives up at the first entry that it cannot read.
    #[error("ignition.security.tls.certificateAuthorities[{index}] {fault}")]
    Ca {
        /// Which one.
        index: usize,
        /// What is wrong with it.
        fault: CaFault,
    },
}

/// Faults that keep no machine from booting today, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// It is nearly as large as a platform takes, or larger.
    Size(usize),
    /// An entry that is fetched itself.
    RemoteCa(usize),
    /// An entry holds more certificates than Ignition reads there.
    OnlyFirst {
        /// Which entry.
        index: usize,
        /// How many it holds.
        present: usize,
    },
    /// Something else that is fetched.
    OtherSource(String),
    /// It is fetched through a proxy.
    Proxy,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) if *bytes > EC2_LIMIT => {
                write!(f, "it has {bytes} bytes, and EC2 takes {EC2_LIMIT} of user data")
            }
            Self::Size(bytes) => {
                write!(f, "it has {bytes} bytes, of {EC2_LIMIT} that EC2 takes of user data")
            }
            Self::RemoteCa(index) => {
                write!(f, "certificateAuthorities[{index}] is fetched itself, and not looked at")
            }
            Self::OnlyFirst { index, present } => write!(
                f,
                "certificateAuthorities[{index}] holds {present} certificates, of which Ignition \
                 reads only the first in spec 2"
            ),
            Self::OtherSource(source) => write!(f, "{source} is fetched too, and not looked at"),
            Self::Proxy => f.write_str("ignition.proxy is not looked at"),
        }
    }
}

/// What is wrong with a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Ignition takes a header without a value for an error.
    #[error("has no value")]
    NoValue,
    /// RFC 9110, section 5.1.
    #[error("has a name that HTTP forbids")]
    Name,
    /// RFC 9110, section 5.5.
    #[error("has a value that HTTP forbids")]
    Value,
    /// It replaces what Ignition asks for.
    #[error("asks for {asked}, which Ignition does not read from a config of spec {spec}")]
    Accept {
        /// What a server makes of it.
        asked: String,
        /// That of the pointer config.
        spec: SpecVersion,
    },
}
