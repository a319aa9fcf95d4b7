//! Ignition configs of spec 3, served in every version.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    machine_config_server_fuzz::config(text, &["3.0.0", "3.2.0", "3.4.0", "3.6.0"]);
});
