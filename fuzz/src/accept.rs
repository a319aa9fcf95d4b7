//! Which spec a client gets by its Accept header.

use ignition::negotiate;

use super::text;

/// Judges one input.
pub fn run(data: &[u8]) {
    let accept = text(data);
    let found = negotiate(Some(accept));
    // Entries that are no Ignition's say nothing.
    assert_eq!(negotiate(Some(&format!("text/html,{accept},*/*;q=1"))), found);
    if let Ok(version) = found {
        let own = format!("application/vnd.coreos.ignition+json;version={version}");
        assert_eq!(negotiate(Some(&own)), Ok(version));
    }
}
