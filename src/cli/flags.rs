//! The reference server's flags about logs.

use clap::Args;
use clap::builder::BoolishValueParser;

/// The reference server's logging flags. `--v` counts; the others are accepted, so that an
/// existing invocation works, and change nothing: log lines go to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct KlogFlags {
    /// Verbosity of the log: 0 to 3: normal, 4: details, 8: everything
    #[arg(long = "v", short = 'v', global = true, value_name = "N", default_value_t = 0)]
    pub(super) v: i32,
    #[command(flatten)]
    ignored: IgnoredKlogFlags,
}

/// Flags that take a value, and flags of Go's boolean form: `--flag`, `--flag=true`.
macro_rules! ignored_flags {
    (values { $($value:ident = $value_name:literal,)* } switches { $($switch:ident = $switch_name:literal,)* }) => {
        #[derive(Debug, Args)]
        #[allow(dead_code, reason = "accepted and ignored, for existing invocations")]
        struct IgnoredKlogFlags {
            $(
                #[arg(long = $value_name, global = true, hide = true)]
                $value: Option<String>,
            )*
            $(
                #[arg(long = $switch_name, global = true, hide = true, num_args = 0..=1,
                    require_equals = true, default_missing_value = "true",
                    value_parser = BoolishValueParser::new())]
                $switch: Option<bool>,
            )*
        }
    };
}

ignored_flags! {
    values {
    log_backtrace_at = "log_backtrace_at",
    log_dir = "log_dir",
    log_file = "log_file",
    log_file_max_size = "log_file_max_size",
    log_flush_frequency = "log-flush-frequency",
    stderrthreshold = "stderrthreshold",
    vmodule = "vmodule",
    }
    switches {
    logtostderr = "logtostderr",
    alsologtostderr = "alsologtostderr",
    legacy_stderr_threshold_behavior = "legacy_stderr_threshold_behavior",
    add_dir_header = "add_dir_header",
    one_output = "one_output",
    skip_headers = "skip_headers",
    skip_log_headers = "skip_log_headers",
    }
}
