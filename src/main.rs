//! Runs the command line.

use std::process::ExitCode;

/// What hostile clients made the server take goes back to the system within seconds after they left. The system's own
/// allocator keeps most of it for ever.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Without its thread, memory goes back only while there is something to do: later, and no less.
    #[cfg(target_arch = "x86_64")]
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    machine_config_server::cli::main(std::env::args_os())
}
