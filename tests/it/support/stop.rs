//! Stops background work of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when the value is dropped, also if the test fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
