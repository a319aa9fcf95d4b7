# `just` lists what there is. The checks are .ci/run's own steps, which needs no just.

_list:
    @{{ just_executable() }} --list --unsorted

# all checks, the tests last
[group('checks')]
check:
    .ci/run

# format
[group('checks')]
fmt:
    .ci/run fmt

# lints
[group('checks')]
clippy:
    .ci/run clippy

# documentation
[group('checks')]
doc:
    .ci/run doc

# licences, sources and unused dependencies
[group('checks')]
dependencies:
    .ci/run dependencies

# the Debian package, made and looked into
[group('checks')]
package:
    .ci/run package

# all that takes too long for every change: hours; by name one step of it
[group('checks')]
full *STEPS:
    .ci/full {{ STEPS }}

# every test
[group('checks')]
test:
    .ci/run test

# the binary, for trying it
[group('loop')]
build:
    cargo build --locked

# the tests whose names contain NAME: node_ca::, cluster::server::, rotation
[group('loop')]
one NAME:
    tests/run {{ NAME }}

# boot storm against nginx and others; options as in benches/boot_storm/options.rs
[group('loop')]
bench *OPTIONS:
    cargo bench --locked --bench boot_storm -- {{ OPTIONS }}
