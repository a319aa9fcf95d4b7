//! Ignition configs of spec 2, lifted and served in every version.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    machine_config_server_fuzz::config(text, &["2.0.0", "2.1.0", "2.2.0"]);
});
