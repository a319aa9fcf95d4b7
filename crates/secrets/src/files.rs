//! Files that consist of secrets, identified by their names or by the format of their lines.

use super::assignments::literal;
use super::kind::SecretKind;
use super::names::{Sign, by_name, is_base64};

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
            ["python", "perl", "ruby", "node"].iter().any(|it| name.starts_with(it))
        };
        if commands.any(is_interpreter) { Self::Code } else { Self::by_name(path) }
    }

    fn by_name(path: &str) -> Self {
        let lower = path.to_ascii_lowercase();
        let name = lower.rsplit('/').next().unwrap_or_default();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_disk_key = lower.contains("/cryptsetup-keys.d/")
            || lower.contains("/luks") && (extension == "key" || name.ends_with("keyfile"));
        let is_cluster = lower.contains("corosync") || lower.contains("pacemaker");
        match (name, extension) {
            (".pgpass" | "pgpass" | "pgpass.conf", _) => Self::PgPass,
            ("chap-secrets" | "pap-secrets" | "srp-secrets", _) => Self::Ppp,
            ("psk.txt" | "sasl_passwd" | "sasl-passwd" | "sasl_password", _) => Self::Pairs,
            ("shadow" | "shadow-" | "gshadow" | "smbpasswd", _) => Self::PasswordHashes,
            (
                "munge.key" | ".erlang.cookie" | "mongodb-keyfile" | "mongo-keyfile"
                | "krb5.keytab",
                _,
            ) => Self::Key(SecretKind::SharedKey),
            ("authkey", _) if is_cluster => Self::Key(SecretKind::SharedKey),
            _ if is_disk_key => Self::Key(SecretKind::DiskKey),
            (_, "p12" | "pfx" | "jks" | "jceks" | "keystore" | "ppk") => {
                Self::Key(SecretKind::PrivateKey)
            }
            (_, "keytab") => Self::Key(SecretKind::SharedKey),
            _ if name.ends_with("keys") => Self::Keys,
            (
                _,
                "py" | "pyi" | "pl" | "pm" | "rb" | "js" | "ts" | "go" | "c" | "h" | "rs" | "java",
            ) => Self::Code,
            _ if name.contains("htpasswd") || name.contains("htdigest") => Self::PasswordHashes,
            _ => Self::Other,
        }
    }

    /// The secret in a line of such a file, or in a line of unmistakable format of any file.
    pub(super) fn in_line(self, line: &str) -> Option<(SecretKind, &str)> {
        let mut words = line.split_ascii_whitespace();
        let password = match self {
            Self::PgPass => line.splitn(5, ':').nth(4).filter(|it| !it.is_empty()),
            Self::Ppp => words
                .nth(2)
                .map(|word| word.trim_matches('"'))
                .filter(|it| !it.is_empty() && !it.starts_with(['@', '*', '&'])),
            Self::Pairs => words.nth(1),
            Self::Other | Self::PasswordHashes | Self::Keys | Self::Code | Self::Key(_) => {
                return chrony_key(line, self == Self::Keys).or_else(|| ipsec_secret(line));
            }
        };
        password.map(|password| (SecretKind::Password, password))
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

/// Parses `… : PSK "SECRET"` of ipsec.secrets; keys of other kinds are in files that it names. IPv6 identities contain
/// colons too.
fn ipsec_secret(line: &str) -> Option<(SecretKind, &str)> {
    const KINDS: [(&str, SecretKind); 4] = [
        ("PSK", SecretKind::SharedKey),
        ("XAUTH", SecretKind::Password),
        ("EAP", SecretKind::Password),
        ("NTLM", SecretKind::Password),
    ];
    let (kind, rest) = line.match_indices(':').find_map(|(at, _)| {
        let rest = line[at + 1..].trim_ascii_start();
        let is_apart = |rest: &&str| rest.starts_with([' ', '\t']);
        let of = |(name, kind): &(&str, SecretKind)| {
            Some((*kind, rest.strip_prefix(name).filter(is_apart)?))
        };
        KINDS.iter().find_map(of)
    })?;
    let value = rest.split_ascii_whitespace().next()?;
    let is_value = ["\"", "'", "0s", "0x", "0t"].iter().any(|it| value.starts_with(it));
    is_value.then(|| (kind, value.trim_matches(['"', '\''])))
}

/// Parses `ID TYPE KEY` of chrony's and ntpd's keys. The type is optional if the file contains only keys.
fn chrony_key(line: &str, may_lack_type: bool) -> Option<(SecretKind, &str)> {
    let mut words = line.split_ascii_whitespace();
    let id = words.next()?;
    if id.len() > 10 || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (kind, third, fourth) = (words.next()?, words.next(), words.next());
    let key = match &kind.to_ascii_uppercase()[..] {
        "M" | "MD5" | "SHA1" | "SHA256" | "SHA384" | "SHA512" | "SHA3-224" | "SHA3-256"
        | "SHA3-384" | "SHA3-512" | "TIGER" | "WHIRLPOOL" | "AES128" | "AES256" | "AES128CMAC"
        | "RMD160" => {
            let is_last = fourth.is_none_or(|word| word.starts_with('#'));
            third.filter(|key| key.len() >= 4 && is_last)
        }
        // The old format without a type: `1 KEY`.
        _ if may_lack_type && fourth.is_none() && kind.len() >= 20 && is_base64(kind) => Some(kind),
        _ => None,
    };
    key.map(|key| (SecretKind::SharedKey, key))
}
