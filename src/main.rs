//! Runs the command line.

use std::process::ExitCode;

/// Returns memory that hostile clients have used to the system within seconds after they left. The system's allocator
/// keeps most of it.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Two arenas. The allocator makes four for each processor otherwise, and each returns memory late: a directory of a thousand
/// pools takes an eighth more then, and boots are no faster. The allocator reads what has this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 10] = b"narenas:2\0";

fn main() -> ExitCode {
    // Without its background thread, memory is returned only during activity: later, and not less.
    #[cfg(target_arch = "x86_64")]
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    machine_config_server::cli::main(std::env::args_os())
}
