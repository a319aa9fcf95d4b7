//! Time spans for people.

use time::Duration;

/// Formats a time span by its two largest units.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.whole_seconds().max(0);
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (unit, name) = units[first];
    let whole = format!("{} {name}", seconds / unit);
    match units.get(first + 1).map(|(next, name)| (seconds % unit / next, name)) {
        Some((count @ 1.., name)) => format!("{whole} {count} {name}"),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, text) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_600, "1 h"),
            (3_659, "1 h"),
            (90_061, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::seconds(seconds)), text);
        }
    }
}
