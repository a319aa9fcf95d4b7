//! Repairs of rendered MachineConfigs. One that does not last is made again later and later.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::controllers::runtime::{Requeue, backoff};

/// Repairs by the name of the MachineConfig.
#[derive(Default)]
pub(super) struct Repairs(BTreeMap<String, Repair>);

struct Repair {
    until: Instant,
    waits: Backoff,
}

impl Repairs {
    /// Forgets the repairs that lasted.
    pub(super) fn retain(&mut self, is_changed: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_changed(name));
    }

    /// True if a MachineConfig was changed again after its repair, and is not repaired yet.
    pub(super) fn is_waiting(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_some_and(|repair| repair.until > now)
    }

    /// Records a repair.
    pub(super) fn made(&mut self, name: &str, now: Instant) {
        let new = || Repair { until: now, waits: backoff() };
        let repair = self.0.entry(name.to_owned()).or_insert_with(new);
        repair.until = now + repair.waits.next();
    }

    /// The time of the next look, at the next repair at the latest.
    pub(super) fn requeue(&self, requeue: Requeue, now: Instant) -> Requeue {
        let waits = self.0.values().map(|repair| repair.until.saturating_duration_since(now));
        waits.min().map_or(requeue, |wait| requeue.or_after(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_that_does_not_last_waits_and_one_that_does_is_forgotten() {
        let (mut repairs, now) = (Repairs::default(), Instant::now());
        assert!(!repairs.is_waiting("a", now));
        repairs.made("a", now);
        assert!(repairs.is_waiting("a", now) && !repairs.is_waiting("b", now));
        assert_ne!(repairs.requeue(Requeue::Resync, now), Requeue::Resync);
        repairs.retain(|name| name == "a");
        assert!(repairs.is_waiting("a", now));
        repairs.retain(|_| false);
        assert!(!repairs.is_waiting("a", now));
        assert_eq!(repairs.requeue(Requeue::Resync, now), Requeue::Resync);
    }
}
