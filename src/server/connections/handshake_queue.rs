//! Schedules handshakes fairly among sources.
//!
//! A client can replay the bytes of its part of a handshake, while the server's part is a signature: some milliseconds
//! with an RSA key of 4096 bits, so that one address with a thousand connections causes seconds of work, and others
//! wait. So handshakes are computed in turns: one of each source, and then the next of the first. IPv6 networks of 48
//! bits take turns like one source, within them those of 56 bits, and within these those of 64: a client can have a
//! whole network, and a machine can be in one with such a client. Within a source, the order is that of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use common::sync::lock;
use tokio::sync::oneshot;

use super::connection_limiter::{Group, Source};

/// Number of connections before their first turn up to which the order does not matter, because all of them together
/// take little time.
const FEW: usize = 32;

/// Waiting connections, and the number of concurrent turns.
#[derive(Debug, Clone)]
pub(super) struct HandshakeQueue(Arc<SharedQueue>);

#[derive(Debug)]
struct SharedQueue {
    queue: Mutex<Queue>,
    /// Number of connections before their first turn.
    arrivals: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    next: u64,
    everyone: GroupQueue,
}

/// Waiting connections of a group.
#[derive(Debug, Default)]
struct GroupQueue {
    /// Connections of a source, in the order of arrival.
    waiting: BTreeMap<u64, oneshot::Sender<HandshakePermit>>,
    /// Parts of a larger group that have or had waiting connections.
    parts: BTreeMap<Group, GroupQueue>,
    /// Order of the parts' turns.
    order: VecDeque<Group>,
}

/// The right to compute for one turn. Dropping it passes it on.
#[derive(Debug)]
pub(super) struct HandshakePermit(Option<HandshakeQueue>);

/// A connection before its first turn.
#[derive(Debug)]
pub(super) struct PendingHandshake(HandshakeQueue);

/// A waiting connection. Dropping it leaves the queue.
struct Waiter {
    handshakes: HandshakeQueue,
    source: Source,
    number: u64,
    permit: oneshot::Receiver<HandshakePermit>,
}

impl HandshakeQueue {
    /// Creates a scheduler with so many concurrent turns.
    pub(super) fn new(at_a_time: usize) -> Self {
        let queue = Queue { free: at_a_time, next: 0, everyone: GroupQueue::default() };
        Self(Arc::new(SharedQueue { queue: Mutex::new(queue), arrivals: AtomicUsize::new(0) }))
    }

    /// Counts a connection that will need a turn.
    pub(super) fn arrive(&self) -> PendingHandshake {
        self.0.arrivals.fetch_add(1, Ordering::Relaxed);
        PendingHandshake(self.clone())
    }

    /// A turn at once, if there are so few connections that the order does not matter.
    pub(super) fn try_acquire(&self) -> Option<HandshakePermit> {
        if self.0.arrivals.load(Ordering::Relaxed) > FEW {
            return None;
        }
        let mut queue = self.queue();
        let is_free = queue.free > 0 && queue.everyone.is_empty();
        is_free.then(|| {
            queue.free -= 1;
            HandshakePermit(Some(self.clone()))
        })
    }

    pub(super) async fn wait(self, source: Source) -> Option<HandshakePermit> {
        let mut waiter = self.enqueue(source);
        // All ready connections enter before one is chosen: the runtime's own queue does not know sources.
        tokio::task::yield_now().await;
        self.dispatch();
        (&mut waiter.permit).await.ok()
    }

    fn enqueue(&self, source: Source) -> Waiter {
        let (sender, permit) = oneshot::channel();
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        queue.everyone.enter(source).waiting.insert(number, sender);
        drop(queue);
        Waiter { handshakes: self.clone(), source, number, permit }
    }

    /// Gives the free turns to the next connections.
    fn dispatch(&self) {
        loop {
            let mut queue = self.queue();
            if queue.free == 0 {
                return;
            }
            let Some(next) = queue.everyone.pop() else { return };
            queue.free -= 1;
            drop(queue);
            // A connection that has left returns its turn by dropping it.
            let _ = next.send(HandshakePermit(Some(self.clone())));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0.queue)
    }
}

impl GroupQueue {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.order.is_empty()
    }

    /// The line of a source within that of everyone, created if necessary.
    fn enter(&mut self, source: Source) -> &mut Self {
        Group::within_everyone(source).fold(self, |line, part| {
            line.parts.entry(part).or_insert_with(|| {
                line.order.push_back(part);
                Self::default()
            })
        })
    }

    /// The line of a source, if it exists.
    fn of(&mut self, source: Source) -> Option<&mut Self> {
        Group::within_everyone(source).try_fold(self, |line, part| line.parts.get_mut(&part))
    }

    /// Takes the first connection of the part that is next, and moves the part to the end.
    fn pop(&mut self) -> Option<oneshot::Sender<HandshakePermit>> {
        if let Some((_, first)) = self.waiting.pop_first() {
            return Some(first);
        }
        while let Some(part) = self.order.pop_front() {
            let Some(line) = self.parts.get_mut(&part) else { continue };
            let first = line.pop();
            if line.is_empty() {
                self.parts.remove(&part);
            } else {
                self.order.push_back(part);
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        if let Some(handshakes) = self.0.take() {
            handshakes.queue().free += 1;
            handshakes.dispatch();
        }
    }
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.0.0.arrivals.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(line) = self.handshakes.queue().everyone.of(self.source) {
            line.waiting.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn source(last: u32) -> Source {
        Source::V4(last.into())
    }

    /// An IPv6 network of 64 bits: the last 8 of these, those before, and the 48 before them.
    fn network(first: u128, middle: u128, last: u128) -> Source {
        Source::V6(first << 16 | middle << 8 | last)
    }

    /// Queues so many connections of each source, which record their source in their turn.
    async fn order_of(handshakes: &HandshakeQueue, waiting: &[(Source, usize)]) -> Vec<Source> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (source, many) in waiting {
            for _ in 0..*many {
                let (handshakes, order, source) = (handshakes.clone(), Arc::clone(&order), *source);
                tasks.spawn(async move {
                    let _permit = handshakes.wait(source).await.unwrap();
                    order.lock().unwrap().push(source);
                });
            }
        }
        tasks.join_all().await;
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn sources_take_turns_however_many_wait_of_one() {
        for at_a_time in [1, 2, 7] {
            let handshakes = HandshakeQueue::new(at_a_time);
            let waiting = [(source(1), 1_000), (source(2), 3), (source(3), 1)];
            let order = order_of(&handshakes, &waiting).await;
            assert_eq!(order.len(), 1_004);
            let permit = |last| order.iter().rposition(|it| *it == source(last)).unwrap();
            assert!(permit(2) < 10 + at_a_time && permit(3) < 4 + at_a_time, "{:?}", &order[..20]);
            let queue = handshakes.queue();
            assert_eq!(queue.free, at_a_time);
            assert!(queue.everyone.is_empty() && queue.everyone.parts.is_empty());
        }
    }

    #[tokio::test]
    async fn a_network_takes_turns_as_one_source_does_however_many_are_in_it() {
        let handshakes = HandshakeQueue::new(1);
        let machines = [source(1), network(2, 0, 0), network(1, 200, 0), network(1, 1, 200)];
        // All networks of 64 bits of one of 56, and one of each of a hundred others within the same 48.
        let mut waiting: Vec<_> = (0..200).map(|last| (network(1, 1, last), 3)).collect();
        waiting.extend((2..102).map(|middle| (network(1, middle, 0), 3)));
        waiting.extend(machines.map(|machine| (machine, 1)));
        let order = order_of(&handshakes, &waiting).await;
        let permit = |machine| order.iter().position(|it| *it == machine).unwrap();
        assert!(permit(machines[0]) < 3 && permit(machines[1]) < 3, "{:?}", &order[..5]);
        // Within the network, those of 56 bits take turns, and within these the sources.
        assert!(permit(machines[2]) < 110, "{}", permit(machines[2]));
        assert!(permit(machines[3]) < 510, "{}", permit(machines[3]));
        assert!(handshakes.queue().everyone.parts.is_empty());
    }

    #[tokio::test]
    async fn a_handshake_that_is_given_up_delays_no_other() {
        let handshakes = HandshakeQueue::new(1);
        let first = handshakes.try_acquire().unwrap();
        assert!(handshakes.try_acquire().is_none(), "there is one");
        let wait = |last| tokio::spawn(handshakes.clone().wait(source(last)));
        let (gone, left) = (wait(1), wait(2));
        let stays = wait(1);
        let waiting = || {
            let queue = handshakes.queue();
            queue.everyone.parts.values().map(|line| line.waiting.len()).sum::<usize>()
        };
        while waiting() < 3 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        left.abort();
        assert!(gone.await.is_err() && left.await.is_err());
        drop(first);
        let permit = tokio::time::timeout(Duration::from_secs(180), stays).await.unwrap();
        drop(permit.unwrap().unwrap());
        // A turn that came just when its connection ended.
        let permit = handshakes.try_acquire();
        let late = handshakes.enqueue(source(3));
        drop(permit);
        drop(late);
        let queue = handshakes.queue();
        assert_eq!((queue.free, queue.everyone.parts.len()), (1, 0));
        assert!(queue.everyone.is_empty());
    }

    #[test]
    fn where_many_arrive_all_of_them_queue() {
        let handshakes = HandshakeQueue::new(2);
        let mut arrivals: Vec<_> = (0..=FEW).map(|_| handshakes.arrive()).collect();
        assert!(handshakes.try_acquire().is_none());
        arrivals.pop();
        assert!(handshakes.try_acquire().is_some());
    }
}
