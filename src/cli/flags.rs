//! Flags about logs: the reference server's, and the form of lines.

use clap::builder::BoolishValueParser;
use clap::{Arg, Args};
use telemetry::LogFormat;

/// Logging flags. Of the reference server's, `--v` counts; the others are accepted, so that an existing invocation works,
/// and change nothing: log lines go to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging", args = ignored())]
pub(super) struct KlogFlags {
    /// Verbosity of the log: 0 to 3: normal, 4: details, 8: everything
    #[arg(long = "v", short = 'v', global = true, value_name = "N", default_value_t = 0)]
    pub(super) v: i32,
    /// Form of the log lines of commands that run until they are stopped
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
}

/// Ignored flags that take a value.
const VALUES: &str = "log_backtrace_at log_dir log_file log_file_max_size log-flush-frequency \
    stderrthreshold vmodule";
/// Ignored flags of Go's boolean form: `--flag`, `--flag=true`.
const SWITCHES: &str = "logtostderr alsologtostderr legacy_stderr_threshold_behavior \
    add_dir_header one_output skip_headers skip_log_headers";

fn ignored() -> impl Iterator<Item = Arg> {
    let flag = |name: &'static str| Arg::new(name).long(name).global(true).hide(true);
    let switch = move |name| {
        let switch = flag(name).num_args(0..=1).require_equals(true);
        switch.default_missing_value("true").value_parser(BoolishValueParser::new())
    };
    VALUES.split_whitespace().map(flag).chain(SWITCHES.split_whitespace().map(switch))
}
