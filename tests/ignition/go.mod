module ignition

go 1.25.0

require github.com/coreos/ignition/v2 v2.27.0
