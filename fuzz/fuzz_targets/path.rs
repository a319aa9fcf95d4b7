//! Which pool a request's path names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine_config_server::server::routes::{Target, target};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

fuzz_target!(|path: &str| {
    for path in [path.to_owned(), format!("/config/{path}")] {
        let Target::Config(pool) = target(&path) else { continue };
        assert!(!pool.is_empty() && !pool.contains('/'), "{path}: {pool}");
        let encoded = format!("/config/{}", utf8_percent_encode(&pool, NON_ALPHANUMERIC));
        assert_eq!(target(&encoded), Target::Config(pool));
    }
});
