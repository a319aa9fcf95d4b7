//! Whose handshake is computed next.
//!
//! A client's part in a handshake may be bytes that it has kept from another day, and ours is a
//! signature: with an RSA key of 4096 bits some milliseconds, so that one address with a thousand
//! connections has seconds of work done for it, and everybody who comes after waits. So handshakes are
//! computed in turns: one of each source, and then the next of the first. Within a source, first come,
//! first served.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::places::Source;

/// Connections before their first turn, up to which the order does not matter: all of them together take
/// a blink.
const FEW: usize = 32;

/// Those who wait for a turn, and how many turns there are at a time.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Connections before their first turn.
    arrivals: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    next: u64,
    /// Who waits, of each source in `order`, first come first; none where all of them left.
    waiting: HashMap<Source, BTreeMap<u64, oneshot::Sender<Turn>>>,
    /// Each source that has or had someone waiting, once.
    order: VecDeque<Source>,
}

/// A turn. Dropping it gives it to the next one.
#[derive(Debug)]
pub(super) struct Turn(Option<Turns>);

/// A connection before its first turn.
#[derive(Debug)]
pub(super) struct Arrival(Turns);

/// A connection that waits. Dropping it leaves the queue.
struct Waiter {
    turns: Turns,
    source: Source,
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Turns {
    /// So many turns at a time.
    pub(super) fn new(at_a_time: usize) -> Self {
        let queue =
            Queue { free: at_a_time, next: 0, waiting: HashMap::new(), order: VecDeque::new() };
        Self(Arc::new(Shared { queue: Mutex::new(queue), arrivals: AtomicUsize::new(0) }))
    }

    /// Counts a connection that is going to want a turn.
    pub(super) fn arrive(&self) -> Arrival {
        self.0.arrivals.fetch_add(1, Ordering::Relaxed);
        Arrival(self.clone())
    }

    /// A turn at once, where there are so few connections that the order does not matter.
    pub(super) fn take(&self) -> Option<Turn> {
        if self.0.arrivals.load(Ordering::Relaxed) > FEW {
            return None;
        }
        let mut queue = self.queue();
        let is_free = queue.free > 0 && queue.order.is_empty();
        is_free.then(|| {
            queue.free -= 1;
            Turn(Some(self.clone()))
        })
    }

    /// Waits for this source's turn.
    pub(super) async fn wait(self, source: Source) -> Option<Turn> {
        let mut waiter = self.enqueue(source);
        // Everybody who is ready comes in before one is chosen: in the runtime's own queue, which is left
        // here, nobody has a source.
        tokio::task::yield_now().await;
        self.hand_out();
        (&mut waiter.turn).await.ok()
    }

    fn enqueue(&self, source: Source) -> Waiter {
        let (sender, turn) = oneshot::channel();
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        let is_new = !queue.waiting.contains_key(&source);
        if is_new {
            queue.order.push_back(source);
        }
        queue.waiting.entry(source).or_default().insert(number, sender);
        drop(queue);
        Waiter { turns: self.clone(), source, number, turn }
    }

    /// Gives the free turns to those who are next.
    fn hand_out(&self) {
        loop {
            let mut queue = self.queue();
            if queue.free == 0 {
                return;
            }
            let Some(next) = queue.pop() else { return };
            queue.free -= 1;
            drop(queue);
            // One that left meanwhile gives it back by dropping it.
            let _ = next.send(Turn(Some(self.clone())));
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// The first of the source that is next, which is the last one then.
    fn pop(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(source) = self.order.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&source) else { continue };
            let first = waiting.pop_first();
            if waiting.is_empty() {
                self.waiting.remove(&source);
            } else {
                self.order.push_back(source);
            }
            if let Some((_, first)) = first {
                return Some(first);
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.queue().free += 1;
            turns.hand_out();
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.0.arrivals.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut queue = self.turns.queue();
        if let Some(waiting) = queue.waiting.get_mut(&self.source) {
            waiting.remove(&self.number);
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

    /// So many of each source, who note their source when it is their turn and are done.
    async fn order_of(turns: &Turns, waiting: &[(u32, usize)]) -> Vec<u32> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (last, many) in waiting {
            for _ in 0..*many {
                let (turns, order, last) = (turns.clone(), Arc::clone(&order), *last);
                tasks.spawn(async move {
                    let _turn = turns.wait(source(last)).await.unwrap();
                    order.lock().unwrap().push(last);
                });
            }
        }
        tasks.join_all().await;
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn sources_take_turns_however_many_wait_of_one() {
        for at_a_time in [1, 2, 7] {
            let turns = Turns::new(at_a_time);
            let order = order_of(&turns, &[(1, 1_000), (2, 3), (3, 1)]).await;
            assert_eq!(order.len(), 1_004);
            let place = |last| order.iter().rposition(|it| *it == last).unwrap();
            assert!(place(2) < 10 + at_a_time && place(3) < 4 + at_a_time, "{:?}", &order[..20]);
            let queue = turns.queue();
            assert_eq!(queue.free, at_a_time);
            assert!(queue.waiting.is_empty() && queue.order.is_empty());
        }
    }

    #[tokio::test]
    async fn whoever_leaves_holds_up_nobody() {
        let turns = Turns::new(1);
        let first = turns.take().unwrap();
        assert!(turns.take().is_none(), "there is one");
        let wait = |last| tokio::spawn(turns.clone().wait(source(last)));
        let (gone, left) = (wait(1), wait(2));
        let stays = wait(1);
        let waiting = || turns.queue().waiting.values().map(BTreeMap::len).sum::<usize>();
        while waiting() < 3 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        left.abort();
        assert!(gone.await.is_err() && left.await.is_err());
        drop(first);
        let turn = tokio::time::timeout(Duration::from_secs(10), stays).await.unwrap();
        drop(turn.unwrap().unwrap());
        // A turn that came just when its connection ended.
        let turn = turns.take();
        let late = turns.enqueue(source(3));
        drop(turn);
        drop(late);
        let queue = turns.queue();
        assert_eq!((queue.free, queue.order.len(), queue.waiting.len()), (1, 0, 0));
    }

    #[test]
    fn where_many_arrive_all_of_them_queue() {
        let turns = Turns::new(2);
        let mut arrivals: Vec<_> = (0..=FEW).map(|_| turns.arrive()).collect();
        assert!(turns.take().is_none());
        arrivals.pop();
        assert!(turns.take().is_some());
    }
}
