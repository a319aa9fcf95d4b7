//! Flags of `cmp enroll`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use cmp::DirectoryName;
use pki::{Host, KeyAlgorithm};

use crate::flags::{duration, key_algorithm};

/// Settings of the command.
#[derive(Debug, Args)]
pub struct EnrollSettings {
    /// Where the CA answers: http:// or https://
    #[arg(long)]
    pub(super) url: String,
    /// The last part of the URL's path, where a server keeps several CAs apart
    #[arg(long, value_name = "NAME")]
    pub(super) ca_name: Option<String>,
    /// Name of the CA, such as CN=ca,O=Example; by default the issuer of --cert or --renew
    #[arg(long, value_name = "NAME")]
    pub(super) recipient: Option<DirectoryName>,
    /// Name of whoever answers, if that is not the recipient but an RA, say
    #[arg(long, value_name = "NAME")]
    pub(super) expect_sender: Option<DirectoryName>,

    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    proof: ProofFlags,

    /// CAs, one of which the server's HTTPS has to come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(super) cacert: Option<PathBuf>,
    /// CAs, one of which the signatures of answers and the new certificate have to come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(super) trusted: Option<PathBuf>,
    /// Allow plain HTTP: messages are protected all the same, but all can read them
    #[arg(long, help_heading = "Trust")]
    pub(super) allow_http: bool,
    /// Protect messages by SHA-1 and take answers that are so, for an old server
    #[arg(long, help_heading = "Trust")]
    pub(super) allow_sha1: bool,

    /// Write the certificate here, and those that lead to its root
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) out: PathBuf,
    /// Write the CAs here that the server sends
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) cas_out: Option<PathBuf>,
    /// Ask the server to do without a confirmation
    #[arg(long)]
    pub(super) implicit_confirm: bool,
    /// Give up after this time, waiting for an approval included
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub(super) timeout: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What is asked for")]
#[command(group = ArgGroup::new("what").required(true).args(["subject", "csr", "renew"]))]
struct WantedFlags {
    /// Name in a first certificate, such as CN=server,O=Example
    #[arg(long, value_name = "NAME", requires = "key_out")]
    subject: Option<DirectoryName>,
    /// What this PKCS #10 request asks for, in PEM or DER
    #[arg(long, value_name = "FILE", conflicts_with = "key_out")]
    csr: Option<PathBuf>,
    /// The same as this certificate, in PEM, which signs the request by --key
    #[arg(long, value_name = "CERT", requires = "key_out", requires = "key",
        conflicts_with_all = ["cert", "secret_file"])]
    renew: Option<PathBuf>,
    /// Alternative name in a first certificate, a DNS name or an address; may be given again
    #[arg(long, value_name = "HOST", requires = "subject")]
    dns: Vec<Host>,
    /// Where the new key goes, before anything is asked for. A key that is there is taken
    #[arg(long, value_name = "FILE")]
    key_out: Option<PathBuf>,
    /// Kind of a new key: p256, p384, p521, rsa2048, rsa3072, rsa4096
    #[arg(long, value_name = "KIND", default_value = "p256", value_parser = key_algorithm)]
    key_algorithm: KeyAlgorithm,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Who asks")]
struct ProofFlags {
    /// File with the password that the CA gave out
    #[arg(long, value_name = "FILE", conflicts_with = "cert")]
    secret_file: Option<PathBuf>,
    /// What the CA knows the password by (senderKID)
    #[arg(
        long,
        value_name = "REFERENCE",
        requires = "secret_file",
        default_value = "",
        hide_default_value = true
    )]
    sender_kid: String,
    /// Sign requests with this certificate instead, in PEM, followed by those that lead to its CA
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of --cert or --renew, in PEM
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) enum Wanted {
    /// A first certificate for a new key.
    First {
        /// Subject of the certificate.
        subject: DirectoryName,
        /// Alternative names of the certificate.
        hosts: Vec<Host>,
        /// Path of the key, which is generated if it is missing.
        key: PathBuf,
    },
    /// A certificate for a PKCS #10 request in PEM or DER.
    Signing(PathBuf),
    /// A renewal of the certificate that signs the request, for another key.
    Renewal {
        /// Path of the new key, which is generated if it is missing.
        key: PathBuf,
    },
}

#[derive(Debug)]
pub(super) enum Proof {
    /// A password in a file, and its reference.
    Password {
        /// Path of the file. A newline at its end is not part of the password.
        file: PathBuf,
        /// Reference of the password.
        reference: String,
    },
    /// A certificate, followed by those that lead to its CA.
    Certificate {
        /// Path of the certificates in PEM.
        certificate: PathBuf,
        /// Path of the key in PEM.
        key: PathBuf,
    },
}

impl EnrollSettings {
    pub(super) fn proof(&self) -> anyhow::Result<Proof> {
        let ProofFlags { secret_file, sender_kid, cert, key } = &self.proof;
        let certificate = self.wanted.renew.as_ref().or(cert.as_ref());
        Ok(match (secret_file, certificate, key) {
            (Some(file), None, _) => {
                Proof::Password { file: file.clone(), reference: sender_kid.clone() }
            }
            (None, Some(certificate), Some(key)) => {
                Proof::Certificate { certificate: certificate.clone(), key: key.clone() }
            }
            _ => anyhow::bail!("--secret-file, --cert with --key, or --renew with --key is needed"),
        })
    }

    /// Requested certificate in the flags.
    pub(super) fn wanted(&self) -> anyhow::Result<Wanted> {
        let WantedFlags { subject, csr, renew, dns, key_out, .. } = &self.wanted;
        Ok(match (subject, csr, renew, key_out) {
            (Some(subject), None, None, Some(key)) => {
                Wanted::First { subject: subject.clone(), hosts: dns.clone(), key: key.clone() }
            }
            (None, Some(csr), None, None) => Wanted::Signing(csr.clone()),
            (None, None, Some(_), Some(key)) => Wanted::Renewal { key: key.clone() },
            _ => anyhow::bail!("one of --subject, --csr and --renew is needed"),
        })
    }

    /// Algorithm of a new key.
    pub(super) fn key_algorithm(&self) -> KeyAlgorithm {
        self.wanted.key_algorithm
    }
}
