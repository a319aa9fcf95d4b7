//! How much the kernel holds for a client that does not read.
//!
//! Left to itself it takes megabytes for each, so that a few hundred clients that ask and never read
//! take all that it has. Bounded, a config of 440 KB goes out in parts, and each part wakes the
//! connection's task once more: a fifth of what such a boot costs. So connections may have their first
//! answer out at once, as machines do that boot, as long as all of these together are not too many
//! bytes; all others, and every further answer, are bounded.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use socket2::SockRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that wait in the kernel for a client beyond what is on its way; a part of 64 KiB that is
/// begun below it goes in whole.
const BOUND: u32 = 64 << 10;
/// What first answers that go out at once may come to, in KiB: 37 of 440 KB, 135 compact ones.
const ROOM: usize = 16 << 10;

/// Room for first answers that go out at once, a permit a KiB.
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
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

impl FirstAnswer {
    pub(super) fn new(room: SendRoom) -> Self {
        Self { room, stage: Stage::Awaited, place: None }
    }

    /// Makes room for an answer of so many bytes, if there is some.
    pub(super) fn begin(&mut self, socket: &impl AsFd, bytes: u64) -> io::Result<()> {
        if self.stage != Stage::Awaited {
            return Ok(());
        }
        self.stage = Stage::Bounded;
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        if let Ok(place) = Arc::clone(&self.room.0).try_acquire_many_owned(kib) {
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn first_answers_go_out_at_once_as_long_as_there_is_room_for_all_of_each() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let held = || SockRef::from(&socket).tcp_notsent_lowat().unwrap();
        bound(&socket).unwrap();
        let room = SendRoom::new();
        let mut answers: Vec<_> = (0..40).map(|_| FirstAnswer::new(room.clone())).collect();
        let begin = |answer: &mut FirstAnswer, bytes| {
            bound(&socket).unwrap();
            answer.begin(&socket, bytes).unwrap();
            held() == u32::MAX
        };
        let roomy = answers.iter_mut().filter_map(|it| begin(it, 442_000).then_some(())).count();
        assert_eq!(roomy, 37);
        // A smaller one fits in where a larger one does not; one beyond all room never does.
        let mut smaller = FirstAnswer::new(room.clone());
        assert!(begin(&mut smaller, 100_000));
        answers.clear();
        let mut huge = FirstAnswer::new(room.clone());
        assert!(!begin(&mut huge, 1 << 40));
        // A second answer is bounded, and so is whatever comes after the first was not roomy.
        smaller.end(&socket).unwrap();
        assert_eq!(held(), BOUND);
        assert!(!begin(&mut smaller, 1));
    }
}
