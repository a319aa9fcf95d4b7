//! What a process does while nothing is asked of it.

use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::DEADLINE;

/// The share of a processor that a process at rest may use.
const SHARE: f64 = 0.002;
/// Long enough for whatever comes every few seconds to come several times.
const WINDOW: Duration = Duration::from_secs(12);

/// Waits until the process has come to rest: for a while it uses next to nothing. Panics if it does
/// not.
pub(crate) fn comes_to_rest(pid: u32) {
    let started = Instant::now();
    loop {
        let (before, begun) = (processor_time(pid), Instant::now());
        // This is what is measured: a while in which nothing happens.
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
