//! Output of `certs show`, as lines or JSON.

use serde::Serialize;
use table::table;

use crate::commands::print_line;
use crate::commands::process::terminal;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateReport {
    pub(super) certificates: Vec<CertificateLine>,
    pub(super) pointer_configs: Vec<PointerLine>,
}

/// A certificate. Times are in RFC 3339.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateLine {
    /// Kind: `serving pair`, `authority` or `older authority`.
    pub(super) what: &'static str,
    /// Kind for people.
    #[serde(skip)]
    pub(super) kind: &'static str,
    pub(super) subject: String,
    pub(super) issuer: String,
    pub(super) key: String,
    pub(super) not_before: String,
    pub(super) not_after: String,
    pub(super) renewal: String,
    pub(super) hosts: Vec<String>,
}

/// A pointer config with its trust.
#[derive(Debug, Serialize)]
pub(super) struct PointerLine {
    pub(super) name: String,
    pub(super) says: String,
}

impl CertificateReport {
    pub(super) fn print_lines(&self) {
        let names = ["WHAT", "SUBJECT", "ISSUER", "KEY", "VALID FROM", "UNTIL", "RENEWAL", "HOSTS"];
        let row = |it: &CertificateLine| {
            let texts = [it.kind, &it.subject, &it.issuer, &it.key];
            let times = [&it.not_before, &it.not_after, &it.renewal].map(String::as_str);
            let texts = texts.into_iter().chain(times).map(str::to_owned);
            texts.chain([it.hosts.join(",")]).collect()
        };
        let rows: Vec<Vec<String>> = self.certificates.iter().map(row).collect();
        terminal::print(&table(&names, &rows, terminal::style()));
        for pointer in &self.pointer_configs {
            print_line(&format!("{}: {}", pointer.name, pointer.says));
        }
    }
}
