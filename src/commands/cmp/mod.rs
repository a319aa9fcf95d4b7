//! The command `cmp enroll`: gets a certificate from a CA by CMPv2, with files.
//!
//! A new key is on disk before the request is sent, so that no certificate comes for a lost key. An existing key is
//! used again, so that a failed enrolment is retried with the same key.

mod settings;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use cmp::{Credential, CredentialFault, EnrolledCertificate, Pause, Request, Settings};
use cmp_http::Server;
use files::bounded;
use files::owners::Reader;
use files::replace::{PRIVATE, PUBLIC, replace};
use pem::Pem;
use pki::Certificate;
use pki::certificate::key_of;
use rcgen::KeyPair;
use tokio::time::timeout;

pub(crate) use self::settings::EnrollSettings;

use self::settings::{ProofFlags, RequestedFlags};
use super::print_line;
use super::process::block_on;
use super::process::progress::Progress;
use super::stores::certificate_texts::read_certificates;

/// Requests a certificate, and writes the result.
pub(crate) fn enroll(settings: &EnrollSettings) -> anyhow::Result<()> {
    let credential = read_credential(settings)?;
    let certificates = |flag: &str, path: &Option<PathBuf>| match path {
        Some(path) => read_certificates(path).with_context(|| named(flag, path)),
        None => Ok(Vec::new()),
    };
    let cas = certificates("--cacert", &settings.cacert)?;
    let trusted = certificates("--trusted", &settings.trusted)?;
    let ca_name = settings.ca_name.as_deref();
    let server = Server::new(&settings.url, ca_name, &cas, settings.allow_http)?;
    let RequestedFlags { subject, csr, renew, dns: hosts, .. } = &settings.requested;
    let old = renew.as_ref().map(|_| renewed(&credential)).transpose()?;
    let csr = csr.as_deref().map(read_csr).transpose()?;
    let key = key(&settings.requested)?;
    let request = match (subject, &csr, &old, &key) {
        (Some(subject), None, None, Some(key)) => Request::First { subject, hosts, key },
        (None, Some(csr), None, None) => Request::Signing(csr),
        (None, None, Some(old), Some(key)) => Request::Renewal { old, key },
        _ => bail!("one of --subject, --csr and --renew is needed"),
    };
    let transaction = Settings {
        recipient: settings.recipient.clone(),
        expected_sender: settings.expect_sender.clone(),
        trusted,
        allow_sha1: settings.allow_sha1,
        implicit_confirm: settings.implicit_confirm,
        credential,
    };
    let progress = Progress::start(&format!("waiting for the certificate of {}", settings.url));
    let enrolled = block_on(async {
        let asked = server.client().enrol(transaction, request, |time, pause| {
            let time = time.as_secs();
            let line = match pause {
                Pause::Requested("") => format!("the server asks to wait {time} s"),
                Pause::Requested(reason) => format!("the server asks to wait {time} s: {reason}"),
                Pause::Unreachable(error) => {
                    format!("{error}; the server has the request, asking again in {time} s")
                }
            };
            progress.pause(|| print_line(&line));
        });
        let timed_out = |_| anyhow!("no certificate within {} s", settings.timeout.as_secs());
        anyhow::Ok(timeout(settings.timeout, asked).await.map_err(timed_out)??)
    })??;
    drop(progress);
    write(settings, &enrolled)
}

/// The certificate to renew, which authenticates the request.
fn renewed(credential: &Credential) -> anyhow::Result<Certificate> {
    let Credential::Certificate { chain, .. } = credential else {
        bail!("--renew signs with the certificate that it renews");
    };
    chain.first().cloned().context("--renew names no certificate")
}

fn write(settings: &EnrollSettings, enrolled: &EnrolledCertificate) -> anyhow::Result<()> {
    let EnrolledCertificate { certificate, chain, cas, modified } = enrolled;
    let pem = |certificates: &[Certificate]| {
        certificates.iter().map(Certificate::to_pem).collect::<String>()
    };
    replace(
        &settings.out,
        (certificate.to_pem() + &pem(chain)).as_bytes(),
        PUBLIC,
        Reader::Directory,
    )?;
    if let Some(path) = &settings.cas_out {
        replace(path, pem(cas).as_bytes(), PUBLIC, Reader::Directory)?;
    }
    let mut line = format!(
        "{}: \"{}\" by \"{}\", until {}",
        settings.out.display(),
        certificate.common_name,
        certificate.issuer,
        certificate.not_after.date(),
    );
    let mut count = |many: usize, what: &str| {
        if many > 0 {
            let _ = write!(line, "; {what}: {many}");
        }
    };
    count(chain.len(), "intermediates");
    count(cas.len(), "CAs");
    print_line(&line);
    if let Some(report) = modified {
        print_line(&format!("the certificate differs from the request: {report}"));
    }
    Ok(())
}

/// Reads the password or the certificate that authenticates the request.
fn read_credential(settings: &EnrollSettings) -> anyhow::Result<Credential> {
    let ProofFlags { secret_file, sender_kid, cert, key } = &settings.proof;
    let certificate = settings.requested.renew.as_ref().or(cert.as_ref());
    match (secret_file, certificate, key) {
        (Some(file), None, _) => {
            let of_file = || named("--secret-file", file);
            // A newline at its end is not part of the password.
            let secret = bounded::read(file).with_context(of_file)?;
            let reference = sender_kid.as_deref().unwrap_or_default();
            Credential::of_password(secret, reference).with_context(of_file)
        }
        (None, Some(certificate), Some(key)) => {
            let read = |path: &Path| bounded::read(path).with_context(|| path_text(path));
            let read = Credential::of_certificate(&read(certificate)?, &read(key)?);
            read.map_err(|fault| match fault {
                CredentialFault::NoCertificate => anyhow!("{}: {fault}", certificate.display()),
                CredentialFault::OtherKey => {
                    anyhow!("{}: {fault} in {}", key.display(), certificate.display())
                }
                _ => anyhow!("{}: {fault}", key.display()),
            })
        }
        _ => bail!("--secret-file, --cert with --key, or --renew with --key is needed"),
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn named(flag: &str, path: &Path) -> String {
    format!("{flag} {}", path.display())
}

/// Reads a request in PEM or DER.
fn read_csr(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = bounded::read(path).with_context(|| named("--csr", path))?;
    let is_csr =
        |block: &Pem| matches!(block.tag(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST");
    let blocks = pem::parse_many(&bytes).unwrap_or_default();
    let found = blocks.into_iter().find(is_csr);
    Ok(found.map_or(bytes, Pem::into_contents))
}

/// Reads the key of the new certificate, or generates it and writes it to disk before returning.
fn key(flags: &RequestedFlags) -> anyhow::Result<Option<KeyPair>> {
    let Some(path) = &flags.key_out else { return Ok(None) };
    if path.try_exists().with_context(|| named("--key-out", path))? {
        let text = bounded::read(path).with_context(|| path_text(path))?;
        return key_of(&text).map(Some).with_context(|| format!("{}: has no key", path.display()));
    }
    let key = flags.key_algorithm.generate()?;
    replace(path, key.serialize_pem().as_bytes(), PRIVATE, Reader::Directory)?;
    Ok(Some(key))
}
