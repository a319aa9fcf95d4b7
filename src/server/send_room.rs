//! How much the kernel holds for a client that does not read.
//!
//! Left to itself it takes megabytes for each, so that a few hundred clients that ask and never read
//! take all that it has. Bounded, a config of 440 KB goes out in parts, and each part wakes the
//! connection's task once more: a fifth of what such a boot costs. So a few
//! connections at a time may have their first answer out at once, as machines do that boot; all
//! others, and every further answer, are bounded.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use socket2::SockRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that wait in the kernel for a client beyond what is on its way; a part of 64 KiB that is
/// begun below it goes in whole.
const BOUND: u32 = 64 << 10;
/// First answers at a time that may go out at once.
const ROOMY: usize = 24;

/// The first answers that may.
#[derive(Debug, Clone)]
pub(super) struct SendRoom(Arc<Semaphore>);

/// The first answer of a connection.
#[derive(Debug)]
pub(super) struct FirstAnswer {
    room: SendRoom,
    stage: Stage,
    /// Held until the connection ends: so long the kernel may hold what was sent at once.
    place: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not begun.
    Awaited,
    /// It goes out at once.
    Roomy,
    /// It is as bounded as all others, or over.
    Bounded,
}

impl SendRoom {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOMY)))
    }
}

impl FirstAnswer {
    pub(super) fn new(room: SendRoom) -> Self {
        Self { room, stage: Stage::Awaited, place: None }
    }

    /// Makes room for it, if there is some.
    pub(super) fn begin(&mut self, socket: &impl AsFd) -> io::Result<()> {
        if self.stage != Stage::Awaited {
            return Ok(());
        }
        self.stage = Stage::Bounded;
        if let Ok(place) = Arc::clone(&self.room.0).try_acquire_owned() {
            SockRef::from(socket).set_tcp_notsent_lowat(u32::MAX)?;
            (self.stage, self.place) = (Stage::Roomy, Some(place));
        }
        Ok(())
    }

    /// Bounds what comes after it.
    pub(super) fn end(&mut self, socket: &impl AsFd) -> io::Result<()> {
        if self.stage == Stage::Roomy {
            bound(socket)?;
        }
        self.stage = Stage::Bounded;
        Ok(())
    }
}

/// Bounds what is held for a connection, or for those of a listener.
pub(super) fn bound(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(BOUND)
}
