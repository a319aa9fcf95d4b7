//! Times as Go takes them (`ReadASN1UTCTime`, `ReadASN1GeneralizedTime`, RFC 5280 section 4.1.2.5).

use time::{Date, Month, Time};

use super::der::Reader;

const UTC_TIME: u8 = 23;
const GENERALIZED_TIME: u8 = 24;

/// Checks both ends of a validity.
pub(super) fn validity(mut ends: Reader<'_>) -> Option<()> {
    moment(&mut ends)?;
    moment(&mut ends)
}

fn moment(ends: &mut Reader<'_>) -> Option<()> {
    let element = ends.any()?;
    let digits = element.contents.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (pairs, _) = digits.as_chunks::<2>();
    let mut pairs = pairs.iter().map(|[tens, ones]| (tens - b'0') * 10 + (ones - b'0'));
    let year = match (element.tag, digits.len()) {
        // Both centuries of a two-digit year, 1950 to 2049, have the leap years of 2000 to 2099.
        (UTC_TIME, 12) => 2000 + i32::from(pairs.next()?),
        (GENERALIZED_TIME, 14) => i32::from(pairs.next()?) * 100 + i32::from(pairs.next()?),
        _ => return None,
    };
    let month = Month::try_from(pairs.next()?).ok()?;
    Date::from_calendar_date(year, month, pairs.next()?).ok()?;
    Time::from_hms(pairs.next()?, pairs.next()?, pairs.next()?).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_of_the_calendar() {
        let read = |tag: u8, text: &str| {
            let length = u8::try_from(text.len()).unwrap();
            let der = [&[tag, length], text.as_bytes()].concat();
            moment(&mut Reader(&der)).is_some()
        };
        for text in ["261121000000Z", "000229235959Z", "520229000000Z", "991231235959Z"] {
            assert!(read(UTC_TIME, text), "{text}");
        }
        for text in [
            "",
            "Z",
            "2611210000Z",
            "261121000000",
            "261121000000+0000",
            "261121000000.5Z",
            "261321000000Z",
            "260229000000Z",
            "261121240000Z",
            "261121006000Z",
            "261121000060Z",
            "26112100000aZ",
            "20261121000000Z",
        ] {
            assert!(!read(UTC_TIME, text), "{text}");
        }
        assert!(read(GENERALIZED_TIME, "99991231235959Z"));
        assert!(!read(GENERALIZED_TIME, "261121000000Z"));
        assert!(!read(GENERALIZED_TIME, "21000229000000Z"));
        assert!(!read(19, "261121000000Z"));
    }
}
