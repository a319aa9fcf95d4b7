//! Formats times for people: in UTC, until the script shows them in the browser's time zone.

use askama::filters::Safe;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats a time seen at `now`, with the exact time for the pointer that rests on it: hours of the same day,
/// the date of one of another year, else both.
pub(super) fn when(time: &OffsetDateTime, now: &OffsetDateTime) -> Safe<String> {
    let clock = || format!("{:02}:{:02}", time.hour(), time.minute());
    let words = if time.date() == now.date() {
        format!("{}:{:02} UTC", clock(), time.second())
    } else if time.year() == now.year() {
        format!("{}, {} UTC", day_and_month(time), clock())
    } else {
        format!("{} {}", day_and_month(time), time.year())
    };
    element(time, "moment", &words)
}

/// Formats the day of a time, with the exact time for the pointer that rests on it.
pub(super) fn day(time: &OffsetDateTime) -> Safe<String> {
    element(time, "day", &format!("{} {}", day_and_month(time), time.year()))
}

fn day_and_month(time: &OffsetDateTime) -> String {
    let month = time.month().to_string();
    format!("{} {}", time.day(), month.get(..3).unwrap_or(&month))
}

/// Builds the element of numbers and names of months, so that nothing in it needs to be escaped.
fn element(time: &OffsetDateTime, kind: &str, words: &str) -> Safe<String> {
    let time = time.to_offset(time::UtcOffset::UTC);
    let exact =
        format!("{} {:02}:{:02}:{:02} UTC", time.date(), time.hour(), time.minute(), time.second());
    // A year that RFC 3339 cannot write has no attribute, and the script leaves it.
    let attribute = time
        .truncate_to_second()
        .format(&Rfc3339)
        .map(|text| format!(" datetime=\"{text}\""))
        .unwrap_or_default();
    Safe(format!("<time class=\"{kind}\"{attribute} title=\"{exact}\">{words}</time>"))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_moment_has_as_much_of_a_date_as_it_needs() {
        let now = datetime!(2026-11-21 12:00 UTC);
        for (time, words) in [
            (datetime!(2026-11-21 09:05:07 UTC), "09:05:07 UTC"),
            (datetime!(2026-11-20 23:59:59 UTC), "20 Nov, 23:59 UTC"),
            (datetime!(2025-11-21 12:00 UTC), "21 Nov 2025"),
        ] {
            let Safe(html) = when(&time, &now);
            assert!(html.ends_with(&format!(">{words}</time>")), "{html}");
        }
        let Safe(html) = day(&datetime!(2036-01-02 03:04:05.6 UTC));
        let expected = "<time class=\"day\" datetime=\"2036-01-02T03:04:05Z\" title=\"2036-01-02 03:04:05 UTC\">\
            2 Jan 2036</time>";
        assert_eq!(html, expected);
    }
}
