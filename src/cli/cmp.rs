//! `cmp`: certificates from a CA by CMPv2.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use cmp::DirectoryName;
use pki::{Host, KeyAlgorithm};

use super::certs::key_algorithm;
use super::examples;
use super::flags::duration;
use crate::commands::cmp::{EnrollSettings, Proof, Wanted, enroll};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get a certificate: a first one for a new key (--subject), one for a request that is there (--csr),
    /// or a renewal (--renew).
    #[command(after_help = examples::CMP_ENROLL)]
    Enroll(Box<EnrollFlags>),
}

#[derive(Debug, ClapArgs)]
struct EnrollFlags {
    /// Where the CA answers: http:// or https://
    #[arg(long)]
    url: String,
    /// The last part of the URL's path, where a server keeps several CAs apart
    #[arg(long, value_name = "NAME")]
    ca_name: Option<String>,
    /// Name of the CA, such as CN=ca,O=Example; by default the issuer of --cert or --renew
    #[arg(long, value_name = "NAME")]
    recipient: Option<DirectoryName>,
    /// Name of whoever answers, if that is not the recipient but an RA, say
    #[arg(long, value_name = "NAME")]
    expect_sender: Option<DirectoryName>,

    #[command(flatten)]
    wanted: WantedFlags,
    #[command(flatten)]
    proof: ProofFlags,

    /// CAs, one of which the server's HTTPS has to come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    cacert: Option<PathBuf>,
    /// CAs, one of which the signatures of answers and the new certificate have to come from
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    trusted: Option<PathBuf>,
    /// Allow plain HTTP: messages are protected all the same, but all can read them
    #[arg(long, help_heading = "Trust")]
    allow_http: bool,
    /// Protect messages by SHA-1 and take answers that are so, for an old server
    #[arg(long, help_heading = "Trust")]
    allow_sha1: bool,

    /// Write the certificate here, and those that lead to its root
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    out: PathBuf,
    /// Write the CAs here that the server sends
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    cas_out: Option<PathBuf>,
    /// Ask the server to do without a confirmation
    #[arg(long)]
    implicit_confirm: bool,
    /// Give up after this time, waiting for an approval included
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, ClapArgs)]
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

#[derive(Debug, ClapArgs)]
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

impl EnrollFlags {
    fn settings(self) -> anyhow::Result<EnrollSettings> {
        let WantedFlags { subject, csr, renew, dns, key_out, key_algorithm } = self.wanted;
        let ProofFlags { secret_file, sender_kid, cert, key } = self.proof;
        let proof = match (secret_file, renew.clone().or(cert), key) {
            (Some(file), None, _) => Proof::Password { file, reference: sender_kid },
            (None, Some(certificate), Some(key)) => Proof::Certificate { certificate, key },
            _ => anyhow::bail!("--secret-file, --cert with --key, or --renew with --key is needed"),
        };
        let wanted = match (subject, csr, renew, key_out) {
            (Some(subject), None, None, Some(key)) => Wanted::First { subject, hosts: dns, key },
            (None, Some(csr), None, None) => Wanted::Signing(csr),
            (None, None, Some(_), Some(key)) => Wanted::Renewal { key },
            _ => anyhow::bail!("one of --subject, --csr and --renew is needed"),
        };
        Ok(EnrollSettings {
            url: self.url,
            ca_name: self.ca_name,
            recipient: self.recipient,
            expected_sender: self.expect_sender,
            wanted,
            algorithm: key_algorithm,
            proof,
            cacert: self.cacert,
            trusted: self.trusted,
            out: self.out,
            cas_out: self.cas_out,
            allow_http: self.allow_http,
            allow_sha1: self.allow_sha1,
            implicit_confirm: self.implicit_confirm,
            timeout: self.timeout,
        })
    }
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let Command::Enroll(flags) = args.command;
    enroll(&flags.settings()?)
}
