//! Data URLs: what is checked can be decoded, and what is encoded is decoded to the same.

use ignition::data_url::{check, decode, encode};

/// Judges one input.
pub fn run(data: &[u8]) {
    assert_eq!(decode(&encode(data)).as_deref(), Ok(data));
    let Ok(url) = std::str::from_utf8(data) else { return };
    match (check(url), decode(url)) {
        (Ok(()), Ok(_)) => {}
        (Err(error), Err(other)) => assert_eq!(error, other),
        (checked, decoded) => panic!("{checked:?}, but {decoded:?}"),
    }
}
