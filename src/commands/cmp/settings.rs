//! Flags of `cmp enroll`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use cmp::DirectoryName;
use common::flags::{duration, key_algorithm};
use pki::{Host, KeyAlgorithm};

#[derive(Debug, Args)]
pub(crate) struct EnrollSettings {
    /// URL of the CA: http:// or https://
    #[arg(long)]
    pub(super) url: String,
    /// Last part of the URL's path, for a server with several CAs
    #[arg(long, value_name = "NAME")]
    pub(super) ca_name: Option<String>,
    /// Name of the CA, such as CN=ca,O=Example; by default the issuer of --cert or --renew
    #[arg(long, value_name = "NAME")]
    pub(super) recipient: Option<DirectoryName>,
    /// Name of the sender of answers, if it is not the recipient, such as an RA
    #[arg(long, value_name = "NAME")]
    pub(super) expect_sender: Option<DirectoryName>,

    #[command(flatten)]
    pub(super) requested: RequestedFlags,
    #[command(flatten)]
    pub(super) proof: ProofFlags,

    /// CAs that the HTTPS certificate of the server must come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(super) cacert: Option<PathBuf>,
    /// CAs that the signatures of answers and the new certificate must come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(super) trusted: Option<PathBuf>,
    /// Allow plain HTTP: messages stay protected, but others on the network can read them
    #[arg(long, help_heading = "Trust")]
    pub(super) allow_http: bool,
    /// Use and accept SHA-1 for the protection of messages, for an old server
    #[arg(long, help_heading = "Trust")]
    pub(super) allow_sha1: bool,

    /// Write the certificate and its intermediate CAs to this file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) out: PathBuf,
    /// Write the CAs that the server sends to this file
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) cas_out: Option<PathBuf>,
    /// Ask the server for implicit confirmation
    #[arg(long)]
    pub(super) implicit_confirm: bool,
    /// Give up after this time, including the wait for an approval
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
#[command(group = ArgGroup::new("what").required(true).args(["subject", "csr", "renew"]))]
pub(super) struct RequestedFlags {
    /// Name of a first certificate, such as CN=server,O=Example
    #[arg(long, value_name = "NAME", requires = "key_out")]
    pub(super) subject: Option<DirectoryName>,
    /// PKCS #10 request, in PEM or DER
    #[arg(long, value_name = "FILE", conflicts_with = "key_out")]
    pub(super) csr: Option<PathBuf>,
    /// Certificate to renew, in PEM; it signs the request with --key
    #[arg(long, value_name = "CERT", requires = "key_out", requires = "key",
        conflicts_with_all = ["cert", "secret_file"])]
    pub(super) renew: Option<PathBuf>,
    /// Alternative name of a first certificate, a DNS name or an address; repeatable
    #[arg(long, value_name = "HOST", requires = "subject")]
    pub(super) dns: Vec<Host>,
    /// File for the new key, written before the request; an existing key is used
    #[arg(long, value_name = "FILE")]
    pub(super) key_out: Option<PathBuf>,
    /// Kind of a new key: p256, p384, p521, rsa2048, rsa3072, rsa4096
    #[arg(long, value_name = "KIND", default_value = "p256", value_parser = key_algorithm)]
    pub(super) key_algorithm: KeyAlgorithm,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct ProofFlags {
    /// File with the password from the CA
    #[arg(long, value_name = "FILE", conflicts_with = "cert")]
    pub(super) secret_file: Option<PathBuf>,
    /// Name of the password at the CA (senderKID)
    #[arg(long, value_name = "REFERENCE", requires = "secret_file")]
    pub(super) sender_kid: Option<String>,
    /// Sign requests with this certificate instead, in PEM, followed by its intermediate CAs
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Key of --cert or --renew, in PEM
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
}
