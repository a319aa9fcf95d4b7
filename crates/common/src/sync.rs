//! Locks of values that several threads share.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value. Nothing panics while one is locked, so a poisoned lock is used as it is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
