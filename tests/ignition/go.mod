module ignition

go 1.24.0

require github.com/coreos/ignition/v2 v2.26.0
