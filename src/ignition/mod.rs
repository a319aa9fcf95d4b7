//! Ignition configs: spec versions, parsing, validation, conversion.
