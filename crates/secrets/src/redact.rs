//! Removes secrets from texts. Every part of a config that is printed passes through it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use super::assignments::{in_line, masked};
use super::found::{SearchFindings, span};
use super::kind::SecretKind;
use super::names::{Sign, by_name, by_name_alone};
use super::search::search_text;

const MASK: &str = "(secret)";

/// Removes secrets from a text for printing. If the end of a secret is unclear, more is removed rather than less.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    let SearchFindings { mut spans, is_within, .. } = found(text);
    if spans.is_empty() {
        return if is_within { MASK.into() } else { text.into() };
    }
    spans.sort_by_key(|span| span.start);
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for Range { start, end } in spans {
        if end <= done {
            continue;
        }
        if start > done || done == 0 {
            shown.push_str(&text[done..start.max(done)]);
            shown.push_str(MASK);
        }
        done = end;
    }
    shown.push_str(&text[done..]);
    shown.into()
}

/// Kinds of secrets in a kernel argument.
pub(super) fn in_argument(argument: &str) -> BTreeSet<SecretKind> {
    found(argument).kinds
}

/// Secrets in a text in which no value is computed, such as a kernel argument: values that look like a variable or a
/// path count too.
fn found(text: &str) -> SearchFindings {
    let mut found = search_text(text);
    for line in text.lines() {
        // The kernel allows double quotes around name and value.
        let (mut is_quoted, mut seen) = (false, 0);
        for it in in_line(line).filter(|it| it.sign != Sign::Colon) {
            let place = span(line, it.rest).start;
            let quotes = line.get(seen..place).unwrap_or_default().matches('"').count();
            is_quoted ^= quotes % 2 == 1;
            seen = seen.max(place);
            let value = masked(it.rest, is_quoted);
            let kind = by_name_alone(it.name).or_else(|| by_name(it.name, value, it.sign));
            if let Some(kind) = kind.filter(|_| !value.is_empty()) {
                found.add(kind, span(text, value));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_left_out_of_a_text_and_all_else_is_not() {
        for (text, shown) in [
            ("quiet password=sesame ro", "quiet password=(secret) ro"),
            ("password=/etc/a&b;c", "password=(secret)"),
            ("password=\"a b\" ro", "password=\"(secret)\" ro"),
            ("\"password=a b\" ro", "\"password=(secret)\" ro"),
            (
                "quiet \"systemd.setenv=A_PASSWORD=a b\" ro",
                "quiet \"systemd.setenv=A_PASSWORD=(secret)\" ro",
            ),
            ("\"a b\" password=c d", "\"a b\" password=(secret) d"),
            ("\"password=a b", "\"password=(secret)"),
            ("secret=a", "secret=(secret)"),
            ("api_token=/abc wifi_psk=abc x", "api_token=(secret) wifi_psk=(secret) x"),
            ("inst.sshpw=sesame inst.rootpw=$6$x", "inst.sshpw=(secret) inst.rootpw=(secret)"),
            ("\"password\"=\"a b\" ro", "\"password\"=\"(secret)\" ro"),
            (
                "netroot=iscsi:user:sesame@192.0.2.1::::iqn.x",
                "netroot=iscsi:user:(secret)@192.0.2.1::::iqn.x",
            ),
            ("netroot=iscsi:@192.0.2.1::::iqn.x", "netroot=iscsi:@192.0.2.1::::iqn.x"),
            ("rd.znet_passphrase=sesame", "rd.znet_passphrase=(secret)"),
            ("root=cifs://me:sesame@nas/share", "root=cifs://me:(secret)@nas/share"),
            ("systemd.set_credential=db:sesame", "systemd.set_credential=(secret)"),
            ("systemd.setenv=API_TOKEN=0123456789", "systemd.setenv=API_TOKEN=(secret)"),
            ("inst.ks=https://h/ks?token=0123456789", "inst.ks=https://h/ks?token=(secret)"),
            ("rd.luks.options=discard root=UUID=1-2", "rd.luks.options=discard root=UUID=1-2"),
            ("https://u:p@h:1/a", "https://u:(secret)@h:1/a"),
            (
                "https://h/a?sv=2024-01-01&sig=c2lnbmF0dXJlc2lnbmF0dXJl%3D&se=2030",
                "https://h/a?sv=2024-01-01&sig=(secret)&se=2030",
            ),
            ("Authorization: Bearer 0123456789abcdef", "Authorization: Bearer (secret)"),
            ("password hash", "password hash"),
            ("SECRET: password hash, token", "SECRET: password hash, token"),
            ("SECRET: password", "SECRET: password"),
            ("SECRET: private key, token", "SECRET: private key, token"),
            ("set, not shown", "set, not shown"),
            ("", ""),
        ] {
            assert_eq!(redacted(text), shown, "{text}");
        }
        assert_eq!(redacted(r#"{"password": "sesame"}"#), "(secret)");
    }
}
