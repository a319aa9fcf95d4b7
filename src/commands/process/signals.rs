//! Signals by which an administrator, systemd or kubelet stops a process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listener for SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Starts listening; the signals do not end the process any longer. Must be called within a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
