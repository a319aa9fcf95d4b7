//! The end of what goes on beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells it to end when this value does, also where the test fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
