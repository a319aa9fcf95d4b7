//! What a server has used so far, from `/proc`: the process itself and its children, which nginx
//! does its work in.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// User and system time of the process and its children.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let ticks_a_second = rustix::param::clock_ticks_per_second();
    let mut ticks = 0;
    for pid in tree(pid)? {
        let stat = read(pid, "stat")?;
        // The second field is a name in parentheses that may hold blanks; behind it, `utime` is the
        // 12th field and `stime` the 13th (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
        for field in fields.split(' ').skip(11).take(2) {
            ticks += field.parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(ticks * 1_000 / ticks_a_second))
}

/// The most memory that was resident, in bytes, summed over the process and its children. Pages that
/// nginx's processes share are counted for each of them, so its sum is somewhat more than it used.
pub(crate) fn peak_memory(pid: u32) -> Result<u64> {
    status(pid, "VmHWM:")
}

/// The memory that is resident now, in bytes.
pub(crate) fn resident_memory(pid: u32) -> Result<u64> {
    status(pid, "VmRSS:")
}

fn status(pid: u32, field: &str) -> Result<u64> {
    let mut kilobytes = 0;
    for pid in tree(pid)? {
        let status = read(pid, "status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.context("a field is missing in status")?;
        kilobytes += line.trim().trim_end_matches(" kB").parse::<u64>()?;
    }
    Ok(kilobytes * 1_024)
}

fn tree(pid: u32) -> Result<Vec<u32>> {
    let children = read(pid, &format!("task/{pid}/children"))?;
    let children = children.split_whitespace().map(|child| Ok(child.parse()?));
    std::iter::once(Ok(pid)).chain(children).collect()
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).context(path)
}
