//! Measures the processor time of an idle process.

use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::DEADLINE;

/// Maximum share of a processor for an idle process.
const SHARE: f64 = 0.002;
/// Duration of a measurement, in which periodic work of every few seconds occurs several times.
const WINDOW: Duration = Duration::from_secs(12);

/// Waits until the process is idle. Panics if it stays busy.
pub(crate) fn becomes_idle(pid: u32) {
    let started = Instant::now();
    loop {
        let (before, begun) = (processor_time(pid), Instant::now());
        // The measurement is a period without any event.
        std::thread::sleep(WINDOW);
        let used = processor_time(pid).saturating_sub(before).as_secs_f64();
        let used = used / begun.elapsed().as_secs_f64();
        println!("at rest: {:.3} % of a processor", used * 100.0);
        if used < SHARE {
            return;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "it does not come to rest: {:.1} % of a processor, and may use {:.1} %",
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
