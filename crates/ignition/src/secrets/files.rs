//! Files that consist of secrets, identified by their names or by the format of their lines.

use super::assignments::literal;
use super::kind::SecretKind;
use super::names::{Sign, by_name, is_base64};

/// Suffixes of programs in which an unquoted word is a name.
const CODE: [&str; 12] =
    [".py", ".pyi", ".pl", ".pm", ".rb", ".js", ".ts", ".go", ".c", ".h", ".rs", ".java"];
const INTERPRETERS: [&str; 4] = ["python", "perl", "ruby", "node"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// None of the other kinds.
    Other,
    /// `HOST:PORT:DATABASE:USER:PASSWORD` of PostgreSQL.
    PgPass,
    /// `CLIENT SERVER SECRET ADDRESSES` of pppd.
    Ppp,
    /// `ID SECRET`, such as racoon's `psk.txt` and Postfix' `sasl_passwd`.
    Pairs,
    /// shadow(5), htpasswd and the like.
    PasswordHashes,
    /// `ID KEY` of chrony and ntpd; a type between them is optional.
    Keys,
    /// A program, whose texts are quoted.
    Code,
    /// A key that fills the file, in any form.
    Key(SecretKind),
}

impl FileKind {
    /// Determines the kind by the path in the config, and by the interpreter in the first line.
    pub(super) fn of(path: &str, text: &str) -> Self {
        let first = text.lines().next().and_then(|line| line.strip_prefix("#!"));
        let mut commands = first.unwrap_or_default().split_ascii_whitespace();
        let is_interpreter = |command: &str| {
            let name = command.rsplit('/').next().unwrap_or_default();
            INTERPRETERS.iter().any(|it| name.starts_with(it))
        };
        if commands.any(is_interpreter) {
            return Self::Code;
        }
        Self::by_name(path)
    }

    fn by_name(path: &str) -> Self {
        let lower = path.to_ascii_lowercase();
        let name = lower.rsplit('/').next().unwrap_or_default();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        match name {
            ".pgpass" | "pgpass" | "pgpass.conf" => Self::PgPass,
            "chap-secrets" | "pap-secrets" | "srp-secrets" => Self::Ppp,
            "psk.txt" | "sasl_passwd" | "sasl-passwd" | "sasl_password" => Self::Pairs,
            "shadow" | "shadow-" | "gshadow" | "smbpasswd" => Self::PasswordHashes,
            "munge.key" | ".erlang.cookie" | "mongodb-keyfile" | "mongo-keyfile" => {
                Self::Key(SecretKind::SharedKey)
            }
            "authkey" if lower.contains("corosync") || lower.contains("pacemaker") => {
                Self::Key(SecretKind::SharedKey)
            }
            "krb5.keytab" => Self::Key(SecretKind::SharedKey),
            _ if lower.contains("/cryptsetup-keys.d/") => Self::Key(SecretKind::DiskKey),
            _ if lower.contains("/luks") && ends(&[".key", ".keyfile", "keyfile"]) => {
                Self::Key(SecretKind::DiskKey)
            }
            _ if ends(&[".p12", ".pfx", ".jks", ".jceks", ".keystore", ".ppk"]) => {
                Self::Key(SecretKind::PrivateKey)
            }
            _ if ends(&[".keytab"]) => Self::Key(SecretKind::SharedKey),
            _ if ends(&["keys"]) => Self::Keys,
            _ if ends(&CODE) => Self::Code,
            _ if name.contains("htpasswd") || name.contains("htdigest") => Self::PasswordHashes,
            _ => Self::Other,
        }
    }

    /// The secret in a line of such a file, or in a line of unmistakable format of any file.
    pub(super) fn in_line(self, line: &str) -> Option<(SecretKind, &str)> {
        let is_quoted = |word: &str| word.starts_with('"') || word.starts_with('\'');
        match self {
            Self::PgPass => {
                let password = line.splitn(5, ':').nth(4)?;
                return (!password.is_empty()).then_some((SecretKind::Password, password));
            }
            Self::Ppp => {
                let secret = line.split_ascii_whitespace().nth(2)?.trim_matches('"');
                let is_secret = !secret.is_empty() && !secret.starts_with(['@', '*', '&']);
                return is_secret.then_some((SecretKind::Password, secret));
            }
            Self::Pairs => {
                let secret = line.split_ascii_whitespace().nth(1)?;
                return Some((SecretKind::Password, secret));
            }
            Self::Other | Self::PasswordHashes | Self::Keys | Self::Code | Self::Key(_) => {}
        }
        chrony_key(line, self == Self::Keys).or_else(|| {
            // ipsec.secrets: `… : PSK "SECRET"`; keys of other kinds are in files that it names.
            let (kind, rest) = ipsec_kind(line)?;
            let value = rest.split_ascii_whitespace().next()?;
            let is_encoded = || ["0s", "0x", "0t"].iter().any(|it| value.starts_with(it));
            let is_value = is_quoted(value) || is_encoded();
            is_value.then(|| (kind, value.trim_matches(['"', '\''])))
        })
    }

    /// The secret that a file of this kind is as a whole.
    pub(super) fn whole(self, path: &str, text: &str) -> Option<SecretKind> {
        if let Self::Key(kind) = self {
            return (!text.trim().is_empty()).then_some(kind);
        }
        // The name of a file with one word describes the word: `/etc/db/password`, `/etc/kubernetes/token`.
        let word = text.trim();
        let is_word = !word.contains(char::is_whitespace) && word.len() <= 512;
        let value = literal(word).filter(|_| is_word)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = [".txt", ".key", ".secret"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        by_name(name, value, Sign::Equation)
    }
}

/// The kind of secret in a line of ipsec.secrets, and the rest of the line. IPv6 identities contain colons too.
fn ipsec_kind(line: &str) -> Option<(SecretKind, &str)> {
    const KINDS: [(&str, SecretKind); 4] = [
        ("PSK", SecretKind::SharedKey),
        ("XAUTH", SecretKind::Password),
        ("EAP", SecretKind::Password),
        ("NTLM", SecretKind::Password),
    ];
    line.match_indices(':').find_map(|(at, _)| {
        let rest = line[at + 1..].trim_ascii_start();
        let is_apart = |rest: &&str| rest.starts_with([' ', '\t']);
        let of = |(name, kind): &(&str, SecretKind)| {
            Some((*kind, rest.strip_prefix(name).filter(is_apart)?))
        };
        KINDS.iter().find_map(of)
    })
}

/// Parses `ID TYPE KEY` of chrony's and ntpd's keys. The type is optional if the file contains only keys.
fn chrony_key(line: &str, may_lack_type: bool) -> Option<(SecretKind, &str)> {
    const TYPES: [&str; 16] = [
        "M",
        "MD5",
        "SHA1",
        "SHA256",
        "SHA384",
        "SHA512",
        "SHA3-224",
        "SHA3-256",
        "SHA3-384",
        "SHA3-512",
        "TIGER",
        "WHIRLPOOL",
        "AES128",
        "AES256",
        "AES128CMAC",
        "RMD160",
    ];
    let mut words = line.split_ascii_whitespace();
    let (id, kind) = (words.next()?, words.next()?);
    let is_id = id.len() <= 10 && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known));
    let Some(key) = words.next().filter(|_| is_id && is_known) else {
        // The old format without a type: `1 KEY`.
        let is_key = may_lack_type && is_id && words.next().is_none();
        return (is_key && kind.len() >= 20 && is_base64(kind))
            .then_some((SecretKind::SharedKey, kind));
    };
    let is_last = words.next().is_none_or(|word| word.starts_with('#'));
    (key.len() >= 4 && is_last).then_some((SecretKind::SharedKey, key))
}
