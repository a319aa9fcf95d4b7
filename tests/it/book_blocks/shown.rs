//! Comparison of what a page shows with what a command prints, without what is different each time.

/// Returns the first line of the page that is not part of a line of the output, in the same order.
pub(super) fn missing<'a>(expected: &'a str, shown: &str) -> Option<&'a str> {
    let shown: Vec<String> = shown.lines().map(constant).collect();
    let mut rest = shown.iter();
    let lines = expected.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "…");
    for line in lines {
        let part = constant(line);
        if !rest.any(|it| it.contains(&part)) {
            return Some(line);
        }
    }
    None
}

/// A line with `0` for every number, date and hash.
fn constant(line: &str) -> String {
    let mut constant = String::new();
    let mut is_name_of_ca = false;
    for part in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_hex = word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        let has_digit = word.contains(|c: char| c.is_ascii_digit());
        // The end of such a name may have letters alone.
        let is_end = is_name_of_ca && word.len() == 4;
        let is_masked = !word.is_empty() && is_hex && (has_digit || is_end);
        is_name_of_ca = constant.ends_with('@') && is_masked;
        constant.push_str(if is_masked { "0" } else { word });
        constant.push_str(&part[word.len()..]);
    }
    constant
}

#[cfg(test)]
mod tests {
    use super::{constant, missing};

    #[test]
    fn dates_numbers_and_hashes_are_alike() {
        for (line, expected) in [
            ("until 2027-11-22; intermediates: 1", "until 0-0-0; intermediates: 0"),
            ("rendered-worker-0b51a7c2", "rendered-worker-0"),
            ("machine-config-server-ca@1795306769-f690", "machine-config-server-ca@0-0"),
            ("machine-config-server-ca@1795306769-cafe by", "machine-config-server-ca@0-0 by"),
            ("https://192.0.2.17:22623/config/worker", "https://0.0.0.0:0/config/worker"),
            ("a bad cafe, x509", "a bad cafe, x509"),
        ] {
            assert_eq!(constant(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_are_found_in_their_order() {
        let shown = "INFO one of 3\n  two\nthree\n";
        assert_eq!(missing("one of 2\n\nthree\n", shown), None);
        assert_eq!(missing("three\ntwo\n", shown), Some("two"));
    }
}
