//! Finds secrets in the lines of a text: by assignments, directives and commands.

use std::str::Lines;

use super::assignments::{Assignment, in_line, is_quoted, literal};
use super::files::FileKind;
use super::found::{self, SearchFindings, span, start};
use super::hashes;
use super::kind::SecretKind;
use super::kubernetes::indented;
use super::names::{Sign, by_name, may_be_secret};
use super::skipped::{MAX_LINE_BYTES, Skipped};

/// Maximum number of empty lines before the first line of a block.
const MAX_EMPTY: usize = 16;

/// Finds secrets in the lines of `text`, a file of this kind. Without a file, two words do not count as a directive.
pub(super) fn search(text: &str, file: Option<FileKind>, found: &mut SearchFindings) {
    // An entry of a container's environment in YAML has its value in the next line.
    let mut named = None;
    let mut lines = text.lines();
    let mut is_continued = false;
    while let Some(whole) = lines.next() {
        let line = start(whole, MAX_LINE_BYTES);
        // Binary data has no lines.
        if line.len() < whole.len() && !whole.contains('\0') {
            found.add_within([SecretKind::Unsearched(Skipped::Line)]);
        }
        let line = line.trim_start();
        if line.is_empty() || is_comment(line) {
            is_continued &= line.ends_with('\\');
            continue;
        }
        let mut add = |kind, part: &str| found.add(kind, span(text, part));
        for assignment in in_line(line) {
            let Assignment { name, rest, sign } = assignment;
            let is_value = named.is_some() && name == "value";
            if !is_value && !may_be_secret(name) {
                continue;
            }
            if file == Some(FileKind::Code) && !is_text(line, &assignment) {
                continue;
            }
            if let Some(value) = literal(rest) {
                if let Some(kind) = by_name(name, value, sign) {
                    add(kind, value);
                }
                if let ("value", Some(before)) = (name, named)
                    && let Some(kind) = by_name(before, value, Sign::Equation)
                {
                    add(kind, value);
                }
            } else if sign == Sign::Colon && is_block(rest) {
                // `name: |`, and the value in lines that are indented more.
                let indentation = whole.len() - line.len();
                let mut next = lines.clone().take(MAX_EMPTY).filter(|next| !next.trim().is_empty());
                let next = next.next().filter(|next| indented(next) > indentation);
                let value = next.map(str::trim).and_then(literal);
                let kind = value.and_then(|value| by_name(name, value, sign));
                if let (Some(kind), Some(value)) = (kind, value) {
                    add(kind, value);
                }
            }
        }
        named = entry_name(line).or(named.filter(|_| line.starts_with("value")));
        let directive = file.and_then(|_| directive(line));
        // A command continues after a line that ends with a backslash.
        let logical = if is_continued { line } else { joined(text, line, lines.clone()) };
        is_continued = line.ends_with('\\');
        if let Some((kind, value)) = directive.or_else(|| command(logical)) {
            add(kind, value);
        }
        if let Some(hash) = hashes::in_fields(line, file == Some(FileKind::PasswordHashes)) {
            add(SecretKind::PasswordHash, hash);
        }
        if let Some((kind, value)) = file.and_then(|file| file.in_line(line)) {
            add(kind, value);
        }
    }
}

/// Returns `true` if a value in a program is quoted, or within a longer text, so that it is no identifier.
fn is_text(line: &str, assignment: &Assignment<'_>) -> bool {
    let is_quote = |byte: &u8| matches!(byte, b'"' | b'\'');
    let name = span(line, assignment.name);
    let (before, after) = (&line.as_bytes()[..name.start], &line.as_bytes()[name.end..]);
    let quotes = before.iter().rev().take(256).filter(|byte| is_quote(byte)).count();
    // A quoted name does not begin a text.
    let own =
        usize::from(before.last().is_some_and(is_quote) && after.first().is_some_and(is_quote));
    is_quoted(assignment.rest) || (quotes - own) % 2 == 1
}

/// Returns `true` for a comment. `//` without a space can begin a name, of a server or of a registry.
fn is_comment(line: &str) -> bool {
    ["#", ";", "// "].iter().any(|mark| line.starts_with(mark))
}

/// A line with its continuation lines.
fn joined<'a>(text: &'a str, line: &'a str, following: Lines<'a>) -> &'a str {
    if !line.ends_with('\\') {
        return line;
    }
    let start = span(text, line).start;
    let mut end = start + line.len();
    for next in following {
        end = span(text, next).end;
        if end - start > MAX_LINE_BYTES || !next.ends_with('\\') {
            break;
        }
    }
    found::start(&text[start..end], MAX_LINE_BYTES)
}

/// Returns `true` if a YAML value is in the next lines: `|`, `>-`, `&anchor |2+ # comment` and similar.
fn is_block(rest: &str) -> bool {
    let is_part = |c: char| matches!(c, '+' | '-') || c.is_ascii_digit();
    let mut words = rest.split_ascii_whitespace().skip_while(|word| word.starts_with(['&', '!']));
    let sign = words.next().and_then(|word| word.strip_prefix(['|', '>']));
    let is_last = words.next().is_none_or(|word| word.starts_with('#'));
    is_last && sign.is_some_and(|rest| rest.len() <= 2 && rest.chars().all(is_part))
}

/// The name in `- name: NAME`.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("- ").unwrap_or(line).trim_start();
    literal(rest.strip_prefix("name:")?)
}

/// A value without quotes and a statement's semicolon.
fn unquoted(word: &str) -> &str {
    word.trim_end_matches(';').trim_matches(['"', '\''])
}

/// Recognises `NAME VALUE`, the format of daemons without an assignment sign.
fn directive(line: &str) -> Option<(SecretKind, &str)> {
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let second = words.next()?;
    let count = 2 + words.clone().take(8).count();
    let password = |word| Some((SecretKind::Password, unquoted(word)));
    let literal_password = |word| password(word).filter(|(_, value)| literal(value).is_some());
    let shared_key =
        |word| Some((SecretKind::SharedKey, unquoted(word))).filter(|(_, key)| key.len() >= 8);
    // Directives whose next word is a password in any form.
    if let "requirepass" | "masterauth" | "sentinel-pass" | "bindpw" | "rootbindpw" | "rootpw"
    | "auth_pass" | "passphrase" | "bindpasswd" | "ldap_bind_passwd" | "smtp_auth_password"
    | "authpassword" | "rocommunity" | "rwcommunity" = first
    {
        // `rootpw --plaintext PASSWORD` of a kickstart file.
        let mut words = [second].into_iter().chain(words);
        return words.find(|word| !word.starts_with("--")).and_then(literal_password);
    }
    let is_quoted = |word: &str| word.starts_with('"') && unquoted(word).len() >= 4;
    match first.trim_matches(['"', ':']) {
        // `secret "…";` of BIND, chrony's and others' keys.
        "secret" if second.starts_with('"') && line.trim_end().ends_with(';') => shared_key(second),
        // The one-line form: `key NAME { …; secret "…"; };`.
        "key" if line.contains('{') => {
            words.skip_while(|word| *word != "secret").nth(1).and_then(shared_key)
        }
        "password" | "password2" if count == 2 && is_no_module(second) => literal_password(second),
        // GRUB: `password USER PASSWORD`.
        "password" if count == 3 && is_no_module(second) && !second.ends_with(':') => {
            let value = words.next()?;
            let is_named = second.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let is_password = value.bytes().any(|byte| !byte.is_ascii_lowercase());
            literal_password(value).filter(|_| is_named && is_password)
        }
        "sasl_passwd" | "wpa_passphrase" if is_quoted(second) => password(second),
        // SNMP: `createUser NAME SHA "PASSWORD" AES "PASSWORD"`.
        "createUser" => words.find(|word| is_quoted(word)).and_then(password),
        // HAProxy: `stats auth USER:PASSWORD`, `user NAME insecure-password PASSWORD`.
        "stats" if second == "auth" => {
            let (_, value) = words.next()?.split_once(':')?;
            literal_password(value).filter(|_| !value.eq_ignore_ascii_case("password"))
        }
        "user" if words.next() == Some("insecure-password") => words.next().and_then(password),
        // FRR: `neighbor ADDRESS password PASSWORD`.
        "neighbor" if words.next() == Some("password") => words.next().and_then(password),
        "ip" | "isis" | "area" | "enable" | "username" => {
            let after = |key: &str| line.split_once(key).map(|(_, rest)| rest);
            let rest = after(" message-digest-key ").or_else(|| after(" password "))?;
            rest.split_ascii_whitespace().rev().find_map(literal_password)
        }
        _ => None,
    }
}

/// Returns `true` if a word is no keyword of PAM or similar files, whose lines can begin with `password`.
fn is_no_module(word: &str) -> bool {
    const KEYWORDS: [&str; 8] =
        ["required", "requisite", "sufficient", "optional", "include", "substack", "files", "sss"];
    !KEYWORDS.contains(&word) && !word.starts_with(['[', '-', '@'])
}

/// Options of commands that take a login or a password: the commands, the options, and true for logins.
static OPTIONS: &[(&[&str], &[&str], bool)] = &[
    (&["curl"], &["-u", "--user", "-U", "--proxy-user"], true),
    (&["skopeo"], &["--creds", "--src-creds", "--dest-creds"], true),
    (&["podman", "buildah"], &["--creds"], true),
    (&["podman login", "docker login", "oc login", "sshpass"], &["-p"], false),
    (&["ldapsearch", "ldapmodify", "ldapadd"], &["-w"], false),
    (&["ipmitool"], &["-P"], false),
    (&["openssl"], &["-passin", "-passout", "-pass"], true),
    (&["openssl"], &["-k", "-K"], false),
    (&["redis-cli"], &["-a"], false),
    (&["kinit"], &["-w"], false),
    (&["net", "smbclient"], &["-U"], true),
];

/// The value of an option in the same word. Short options of curl without a value can precede it, as in `-sku`.
fn attached<'a>(command: &str, option: &str, word: &'a str) -> Option<&'a str> {
    const FLAGS: &[char] = &[
        '#', '0', '1', '2', '3', '4', '6', 'a', 'f', 'g', 'i', 'j', 'k', 'l', 'n', 's', 'v', 'B',
        'G', 'I', 'J', 'L', 'N', 'O', 'R', 'S', 'Z',
    ];
    match option.strip_prefix('-') {
        Some(letter) if command == "curl" && !letter.starts_with('-') => {
            word.strip_prefix('-')?.trim_start_matches(FLAGS).strip_prefix(letter)
        }
        _ => word.strip_prefix(option),
    }
}

/// Finds a password in the arguments of a command, or in its input.
fn command(line: &str) -> Option<(SecretKind, &str)> {
    let options = if line.contains(" -") { OPTIONS } else { &[] };
    let password = options.iter().find_map(|(commands, options, is_login)| {
        commands.iter().find_map(|command| {
            let (_, arguments) = line.split_once(command)?;
            options.iter().find_map(|option| argument(arguments, command, option, *is_login))
        })
    });
    password.or_else(|| piped(line)).map(|password| (SecretKind::Password, password))
}

/// The password in an option of a command.
fn argument<'a>(
    arguments: &'a str,
    command: &str,
    option: &str,
    is_login: bool,
) -> Option<&'a str> {
    let mut words = arguments.split_ascii_whitespace().take(64).peekable();
    while let Some(word) = words.next() {
        let value = match attached(command, option, word) {
            Some("") => words.peek().copied().filter(|word| !word.starts_with('-')),
            Some(rest) if option.starts_with("--") => rest.strip_prefix('='),
            Some(rest) if matches!(command, "curl" | "sshpass") => Some(rest),
            _ => None,
        };
        let password = value.map(unquoted).and_then(|value| {
            if !is_login {
                return Some(value);
            }
            let (source, password) = value.split_once([':', '%'])?;
            // openssl's `pass:PASSWORD`; `file:` and `env:` name a source.
            (command != "openssl" || source == "pass").then_some(password)
        });
        if let Some(password) = password.filter(|it| literal(it).is_some()) {
            return Some(password);
        }
    }
    None
}

/// Recognises `echo USER:PASSWORD | chpasswd`, and passwords piped to other commands.
fn piped(line: &str) -> Option<&str> {
    const READERS: [&str; 7] = [
        "chpasswd",
        "passwd --stdin",
        "--password-stdin",
        "--passphrase-fd",
        "cryptsetup ",
        "sudo -S",
        "kinit ",
    ];
    let (before, after) = line.split_once('|')?;
    READERS.iter().find(|reader| after.contains(*reader))?;
    let (_, words) = before.split_once("echo ").or_else(|| before.split_once("printf "))?;
    let word = words.split_ascii_whitespace().rfind(|word| !word.starts_with('-'))?;
    let word = unquoted(word);
    let password = word.split_once(':').map_or(word, |(_, password)| password);
    literal(password)
}
