//! Which spec a client gets by its Accept header.
#![no_main]

use ignition::negotiate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|accept: &str| {
    let found = negotiate(Some(accept));
    // Entries that are no Ignition's say nothing.
    assert_eq!(negotiate(Some(&format!("text/html,{accept},*/*;q=1"))), found);
    if let Ok(version) = found {
        let own = format!("application/vnd.coreos.ignition+json;version={version}");
        assert_eq!(negotiate(Some(&own)), Ok(version));
    }
});
