//! Times in tables.

use time::OffsetDateTime;

/// A time for people, to the second.
pub(super) fn moment(time: OffsetDateTime) -> String {
    format!("{} {:02}:{:02}:{:02}Z", time.date(), time.hour(), time.minute(), time.second())
}
