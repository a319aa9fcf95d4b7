module butane

go 1.24.0

require github.com/coreos/butane v0.28.0
