//! Measures the processor time of an idle process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::DEADLINE;

/// Maximum share of a processor for an idle process. The tests' build needs more for the same work, and on a busy machine
/// each wakeup costs several times as much.
const SHARE: f64 = if cfg!(debug_assertions) { 0.01 } else { 0.002 };
/// Duration of a measurement, a period without any event. Periodic work of every few seconds occurs in it several
/// times.
const WINDOW: Duration = Duration::from_secs(12);
/// Time between two readings.
const STEP: Duration = Duration::from_secs(1);

/// Waits until the process has been idle for a while. Panics if it stays busy.
pub(crate) fn becomes_idle(pid: u32) {
    let started = Instant::now();
    let mut readings = VecDeque::from([(started, processor_time(pid))]);
    loop {
        std::thread::sleep(STEP);
        let (now, time) = (Instant::now(), processor_time(pid));
        readings.push_back((now, time));
        let (begun, before) = readings[0];
        if now - begun < WINDOW {
            continue;
        }
        let used = time.saturating_sub(before).as_secs_f64() / (now - begun).as_secs_f64();
        if used < SHARE {
            return;
        }
        readings.pop_front();
        assert!(
            started.elapsed() < DEADLINE,
            "it does not become idle: {:.1} % of a processor, and may use {:.1} %",
            used * 100.0,
            SHARE * 100.0
        );
    }
}

/// The time that all threads of a process have run.
fn processor_time(pid: u32) -> Duration {
    let pid = Pid::from_raw(pid.try_into().expect("a process of this machine"));
    let clock = clock_getcpuclockid(pid).expect("a process of this test");
    clock_gettime(clock).expect("its clock").into()
}
